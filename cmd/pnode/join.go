package main

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/config"
)

func (e environment) joinCommand() *cobra.Command {
	flags := config.Default()
	c := &cobra.Command{
		Use:   "join [INVITE|MULTIADDR]",
		Short: "Join a run, or return to one",
		Long: `Join a run with an invite that "pnode train --listen" or "pnode invite" printed. A folder that
belongs to a run already needs none: without an argument its node comes back, and the
address of a member (a multiaddr) says where to look first.`,
		Example: `  pnode join pnode1-...                     join from any machine that reaches the addresses
  pnode join --dir ~/run7                   return after a restart`,
		Args: usageArgs(cobra.MatchAll(cobra.MaximumNArgs(1), named)),
	}
	f := c.Flags()
	f.SortFlags = false
	f.StringVar(&flags.Dir, "dir", "", "`FOLDER` of this node (default a new one; without an invite the newest)")
	addMachineFlags(f, &flags)
	f.Lookup("listen").Usage = "accept other nodes at `HOST:PORT` (default any port)"
	e.runsNode(c, func(ctx context.Context, args []string) error {
		if err := flags.Validate(); err != nil {
			return err
		}
		return e.join(ctx, flags, cmp.Or(append(args, "")...))
	})
	return c
}

func (e environment) join(ctx context.Context, cfg config.Config, target string) error {
	if err := cfg.TryListen(); err != nil {
		return err
	}
	place, err := config.JoinPlace(cfg.Dir, target != "", time.Now())
	if err != nil {
		return err
	}
	if err := cfg.TryTrace(); err != nil {
		return errors.Join(err, place.Tidy())
	}
	w := e.progress(cfg.JSON, 0)
	cfg.Dir = place.Dir
	err = node.Join(ctx, cfg, target, e.output(w, cfg.Level()))
	return errors.Join(err, w.Close(), place.Tidy())
}
