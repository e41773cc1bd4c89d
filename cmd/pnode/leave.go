package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"pnode/node"
)

func (e environment) leaveCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "leave",
		Short: "Let a node of this machine leave its run",
		Long: `Ask a running node of this machine to hand over its part and leave. The run goes on with
the other nodes; the last one leaves a checkpoint. The command ends when the node has: its
folder can be used again then. Ctrl-C ends the waiting, not the leaving.`,
		Example: `  pnode leave
  pnode leave --dir ~/run7`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			client, err := dial(c.Context(), dir)
			if err != nil {
				return err
			}
			defer client.Close()
			if err := client.Leave(c.Context()); err != nil {
				return err
			}
			fmt.Fprintf(e.stdout, "the node in %s (pid %d) is leaving\n", client.Dir(), client.PID())
			if err := node.AwaitRelease(c.Context(), client.Dir()); err != nil {
				return err
			}
			_, err = fmt.Fprintf(e.stdout, "the node in %s has ended\n", client.Dir())
			return err
		},
	}
	addDir(c, &dir)
	return c
}
