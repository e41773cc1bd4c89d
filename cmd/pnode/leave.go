package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/api"
)

func (e environment) leaveCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "leave",
		Short: "Let a node of this machine leave its run",
		Long: `Ask a running node of this machine to hand over its part and leave. The run continues on the
other nodes, from the newest step: none is done again. The last node leaves a checkpoint.
The command shows what is handed over and returns when the node has ended; its folder can be used
again from then on. Ctrl-C ends the waiting, not the leaving.`,
		Example: `  pnode leave
  pnode leave --dir ~/run7`,
	}
	withNode(c, func(ctx context.Context, client *api.Client) error {
		if err := client.Leave(ctx); err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "the node in %s (pid %d) is leaving\n", client.Dir(), client.PID())
		watching, end := context.WithCancel(ctx)
		var showing sync.WaitGroup
		showing.Go(func() { e.showDrain(watching, client) })
		err := node.AwaitRelease(ctx, client.Dir())
		end()
		showing.Wait()
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(e.stdout, "the node in %s has ended\n", client.Dir())
		return err
	})
	return c
}

// showDrain prints how far a node's way out has come.
func (e environment) showDrain(ctx context.Context, client *api.Client) {
	for event, err := range client.Events(ctx) {
		if err != nil {
			return
		}
		if event.Kind == api.KindDrain {
			fmt.Fprintln(e.stdout, event.Message)
		}
	}
}
