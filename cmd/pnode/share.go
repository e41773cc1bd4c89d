package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pnode/node/api"
	"pnode/node/api/share"
	"pnode/node/config"
)

// sharing says whether and how `pnode watch` shows a page to the local network.
type sharing struct {
	on          bool
	listen      string
	unencrypted bool
}

// flags adds the flags of sharing.
func (s *sharing) flags(f *pflag.FlagSet) {
	f.BoolVar(&s.on, "share", false, "show the page to the local network, to look at and nothing else, until Ctrl-C")
	f.StringVar(&s.listen, "listen", "", "with --share, `ADDRESS` of this machine in the local network: IP or IP:PORT (default the likeliest one and any free port)")
	f.BoolVar(&s.unencrypted, "http", false, "with --share, HTTP without TLS: everybody on the way can read the link and what it shows")
}

// check refuses flags that do not go together.
func (s *sharing) check(c *cobra.Command, printOnly bool) error {
	for _, name := range []string{"listen", "http"} {
		if c.Flags().Changed(name) && !s.on {
			return fmt.Errorf("%w: --%s is for --share: give both", config.ErrInvalid, name)
		}
	}
	if s.on && printOnly {
		return fmt.Errorf("%w: --print is for the page on this machine: leave it out, --share prints its link", config.ErrInvalid)
	}
	return nil
}

// share shows the page of a node to the local network until ctx is done.
func (e environment) share(ctx context.Context, client *api.Client, how sharing) error {
	at, err := share.Address(how.listen)
	if err != nil {
		return fmt.Errorf("%w: %w", config.ErrInvalid, err)
	}
	view := api.OpenView(client.Dir())
	defer view.Close()
	server, err := share.Listen(share.Options{Node: view, Dir: client.Dir(), At: at, Unencrypted: how.unencrypted})
	if err != nil {
		return err
	}
	fmt.Fprintln(e.stderr, "until Ctrl-C, whoever in the local network has this link can look at the run, and do nothing else:")
	if _, err := fmt.Fprintln(e.stdout, server.Link()); err != nil { // the link alone is for scripts
		return err
	}
	if how.unencrypted {
		fmt.Fprintln(e.stderr, "without TLS: everybody on the way can read the link and what it shows")
	} else {
		fmt.Fprintf(e.stderr, "the browser warns of the certificate: go on if it has this SHA-256 fingerprint\n%s\n", server.Fingerprint())
	}
	if err := e.drawCode(server.Link()); err != nil {
		return err
	}
	return server.Run(ctx)
}
