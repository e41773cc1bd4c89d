package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"pnode/node/api"
	"pnode/planner/plan"
)

// browserTimeout bounds the time until a browser asks for the page.
const browserTimeout = time.Minute

func (e environment) watchCommand() *cobra.Command {
	var printOnly bool
	var with sharing
	c := &cobra.Command{
		Use:   "watch",
		Short: "Open the live page of a node on this machine, or share it in the local network",
		Long: `Open the page of a running node in a browser and print its URL. The page shows progress, the loss
curve, the nodes with their layers, memory and times, the schedule, and what happened. It
reconnects by itself when the run or the node starts again.

The URL that is printed contains a key that allows looking and nothing else. The page that the
command opens on an owner's machine can also make invites, and let machines of the local network in.
Other users of this machine do not see its key: the browser reads it from a file that only you can
open, and that is removed afterwards. Only programs on this machine reach the page. To look from
another machine, forward the port:

  ssh -L PORT:127.0.0.1:PORT HOST               then open the same URL

With --share the command shows the page to the local network until Ctrl-C, behind a link of its own:
whoever has it can look, and do nothing else. The browser warns of the certificate, which is made for
this link; it is the right one if it has the fingerprint that is printed.`,
		Example: `  pnode watch
  pnode watch --dir ~/run7 --print              print the URL without opening it
  pnode watch --share                           a link and its QR code for the local network
  pnode watch --share --listen 192.168.1.7:8443 at an address and port of your choice`,
		PreRunE: func(c *cobra.Command, _ []string) error { return with.check(c, printOnly) },
	}
	withNode(c, func(ctx context.Context, client *api.Client) error {
		if with.on {
			return e.share(ctx, client, with)
		}
		if _, err := fmt.Fprintln(e.stdout, client.Page()); err != nil || printOnly {
			return err
		}
		return e.openPage(ctx, client.AdmissionPage())
	})
	c.Flags().BoolVar(&printOnly, "print", false, "print the URL and open nothing")
	with.flags(c.Flags())
	return c
}

// openPage shows a page in the user's browser, or says how to where there is no screen.
func (e environment) openPage(ctx context.Context, page string) (err error) {
	program, args := browser(runtime.GOOS, os.Getenv)
	if program == "" {
		at, err := url.Parse(page)
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stderr, "no screen here: on the machine with the browser run `ssh -L %[1]s:127.0.0.1:%[1]s HOST`, then open the URL there\n", at.Port())
		return nil
	}
	d, err := newDoor(page, doorDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.close()) }()
	cmd := exec.Command(program, append(args, d.file)...)
	if err := cmd.Start(); err != nil {
		fmt.Fprintf(e.stderr, "no browser could be started (%v): open the URL in one\n", err)
		return nil
	}
	if err := cmd.Process.Release(); err != nil { // it may last as long as the browser
		return err
	}
	select {
	case <-d.used:
	case <-ctx.Done():
	case <-time.After(browserTimeout):
		fmt.Fprintf(e.stderr, "no browser has come within %s: open the URL in one\n", plan.Duration(browserTimeout))
	}
	return nil
}

// browser returns the program that opens a URL; empty where there is no screen.
func browser(goos string, getenv func(string) string) (program string, args []string) {
	switch {
	case goos == "windows":
		return "rundll32", []string{"url.dll,FileProtocolHandler"}
	case getenv("SSH_CONNECTION") != "":
		return "", nil // the screen is elsewhere
	case goos == "darwin":
		return "open", nil
	case getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "":
		return "", nil
	}
	return "xdg-open", nil
}

// door leads a browser to a page whose URL contains a key. The list of processes shows only the name
// of a file that this user alone can read. The file redirects to a secret path, which redirects to
// the page.
type door struct {
	file   string
	path   string
	page   string
	used   chan struct{} // closed when a browser has come through
	once   sync.Once
	server *http.Server
	group  errgroup.Group
}

// doorTimeout bounds each request, and the wait for requests at the end.
const doorTimeout = 5 * time.Second

// doorText redirects a browser.
var doorText = template.Must(template.New("door").Parse(`<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={{.}}">
<title>pnode</title>
<a href="{{.}}">the live page of pnode</a>
`))

// newDoor returns an open door with its file in dir.
func newDoor(page, dir string) (*door, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("lead a browser to the page: %w", err)
	}
	d := &door{path: "/" + rand.Text(), page: page, used: make(chan struct{})}
	if err := d.write(dir, "http://"+l.Addr().String()+d.path); err != nil {
		return nil, errors.Join(fmt.Errorf("lead a browser to the page: %w", err), l.Close())
	}
	d.server = &http.Server{Handler: d, ReadTimeout: doorTimeout, WriteTimeout: doorTimeout, MaxHeaderBytes: 16 << 10}
	d.group.Go(func() error {
		if err := d.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	return d, nil
}

// write creates the file with mode 0600.
func (d *door) write(dir, url string) error {
	f, err := os.CreateTemp(dir, "pnode-watch-*.html")
	if err != nil {
		return err
	}
	d.file = f.Name()
	if err := errors.Join(doorText.Execute(f, url), f.Close()); err != nil {
		return errors.Join(err, os.Remove(d.file))
	}
	return nil
}

// ServeHTTP redirects requests of the path to the page.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != d.path {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	w.Header().Set("Location", d.page)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(http.StatusSeeOther)
	d.once.Do(func() { close(d.used) })
}

// close removes the file and waits for requests in progress.
func (d *door) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), doorTimeout)
	defer cancel()
	return errors.Join(os.Remove(d.file), d.server.Shutdown(ctx), d.group.Wait())
}

// doorDir returns a folder whose files browsers can read. Confined ones on Linux (snaps) see neither
// hidden files nor the folder of temporary files.
func doorDir() string {
	if home, err := os.UserHomeDir(); err == nil && runtime.GOOS == "linux" {
		return home
	}
	return os.TempDir()
}
