package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/config"
)

func (e environment) joinCommand() *cobra.Command {
	flags := config.Default()
	var supervised bool
	c := &cobra.Command{
		Use:   "join [INVITE|MULTIADDR]",
		Short: "Join a run, or come back to one",
		Long: `Join a run with an invite, which "pnode train --listen" and "pnode invite" print, or with
the multiaddr of a member when this folder is one already. Without either, come back to
the run of the folder.`,
		Example: `  pnode join pnode1-...                     join from any machine that reaches the addresses
  pnode join --dir ~/run7                   come back after a restart`,
		Args: usageArgs(cobra.MaximumNArgs(1)),
		RunE: func(c *cobra.Command, args []string) error {
			if err := flags.Validate(); err != nil {
				return err
			}
			ctx := c.Context()
			e.interrupts.leaveCheckpoint()
			if supervised {
				var cancel context.CancelFunc
				ctx, cancel = untilEOF(ctx, e.stdin)
				defer cancel()
			}
			target := ""
			if len(args) > 0 {
				target = args[0]
			}
			return e.join(ctx, flags, target)
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&flags.Dir, "dir", "", "`FOLDER` of this node (default a new one, or without an invite the newest)")
	f.StringVar(&flags.Listen, "listen", "", "`HOST:PORT` for other nodes (default any port)")
	addThreads(f, &flags.Threads)
	addDevices(f, &flags)
	addMemory(f, &flags)
	addEmulate(f, &flags)
	addTrace(f, &flags)
	f.BoolVar(&flags.JSON, "json", false, "one JSON object a step on standard output")
	f.StringVar(&flags.LogLevel, "log-level", flags.LogLevel, "`LEVEL`: debug, info, warn or error")
	addSupervised(f, &supervised)
	return c
}

func (e environment) join(ctx context.Context, cfg config.Config, target string) error {
	if err := config.TryListen(cfg.Listen); err != nil {
		return err
	}
	place, err := config.JoinPlace(cfg.Dir, target != "", time.Now())
	if err != nil {
		return err
	}
	if err := config.TryTrace(cfg.Trace); err != nil {
		return errors.Join(err, place.Tidy())
	}
	w := e.progress(cfg.JSON, 0)
	cfg.Dir = place.Dir
	err = node.Join(ctx, cfg, target, e.output(w, cfg.Level()))
	return errors.Join(err, w.Close(), place.Tidy())
}
