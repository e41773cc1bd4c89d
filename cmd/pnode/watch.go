package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/api"
)

// browserTimeout bounds the time until a browser asks for the page.
const browserTimeout = time.Minute

func (e environment) watchCommand() *cobra.Command {
	var printOnly bool
	c := &cobra.Command{
		Use:   "watch",
		Short: "Open the live page of a node on this machine",
		Long: `Open the page of a running node in a browser and print its URL. The page shows progress, the loss
curve, the nodes with their layers, memory and times, the schedule, and what happened. It
reconnects by itself when the run or the node starts again.

The URL contains a key that allows looking and nothing else. Other users of this machine do not
see it: the browser reads it from a file that only you can open, and that is removed afterwards.
Only programs on this machine reach the page. To look from another machine, forward the port:

  ssh -L PORT:127.0.0.1:PORT HOST               then open the same URL`,
		Example: `  pnode watch
  pnode watch --dir ~/run7 --print              print the URL without opening it`,
	}
	withNode(c, func(ctx context.Context, client *api.Client) error {
		if _, err := fmt.Fprintln(e.stdout, client.Page()); err != nil || printOnly {
			return err
		}
		return e.openPage(ctx, client.Page())
	})
	c.Flags().BoolVar(&printOnly, "print", false, "print the URL and open nothing")
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
		fmt.Fprintf(e.stderr, "no browser has come within %v: open the URL in one\n", browserTimeout)
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
