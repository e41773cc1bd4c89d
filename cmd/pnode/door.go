package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

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
