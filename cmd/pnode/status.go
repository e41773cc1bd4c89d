package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/api"
	"pnode/node/progress"
)

// watchEvery bounds the rate of --watch: one snapshot each.
const watchEvery = time.Second

func (e environment) statusCommand() *cobra.Command {
	var asJSON, watch, all, lines bool
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the run of a node on this machine",
		Long: `Show members, plan, step, loss and the times of each stage, as a running node of this machine
knows them. Of more than 64 members it shows this node, the leader, the slowest stages of the plan and what is
wrong, and counts the others. --watch takes the whole terminal: q leaves it, and the run goes on.`,
		Example: `  pnode status
  pnode status --watch
  pnode status --all                              each of 1,000 members
  pnode status --json --dir ~/run7 | jq .loss`,
	}
	withNode(c, func(ctx context.Context, client *api.Client) error {
		if watch && !asJSON && !all && !lines && e.hasScreen() {
			_, err := e.view(ctx, client, statusKeys)
			return err
		}
		ask := client.BriefStatus
		if all || asJSON {
			ask = client.Status
		}
		show := func(st api.Status) error { return progress.Status(e.stdout, st, time.Now(), e.columns()) }
		if asJSON {
			show = func(st api.Status) error { return json.NewEncoder(e.stdout).Encode(st) }
		}
		return e.watchStatus(ctx, ask, show, watch)
	})
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&all, "all", false, "show each of many members and stages")
	c.Flags().BoolVar(&watch, "watch", false, "show it on the whole terminal until q, or where there is none again every second")
	c.Flags().BoolVar(&lines, "plain", false, "with --watch: print the tables again every second on a terminal, too")
	return c
}

// watchStatus shows one snapshot, or one a second until it is interrupted.
func (e environment) watchStatus(ctx context.Context, ask func(context.Context) (api.Status, error), show func(api.Status) error, watch bool) error {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		st, err := ask(ctx)
		if ctx.Err() != nil && watch {
			return nil
		}
		if err != nil {
			return err
		}
		if watch && isTerminal(e.stdout) {
			fmt.Fprint(e.stdout, "\x1b[H\x1b[2J") // home, clear
		}
		if err := show(st); err != nil || !watch {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
