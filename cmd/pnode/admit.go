package main

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/api"
	"pnode/planner/plan"
)

func (e environment) admitCommand() *cobra.Command {
	var dir string
	var refuse bool
	c := &cobra.Command{
		Use:   "admit [CODE]",
		Short: "Let a machine of the local network into the run, or refuse it",
		Long: `Let a machine of the local network into the run of a node that was started with "pnode train --lan".

"pnode join" there asks this node, and shows a code of six digits. Enter what that machine's screen
shows: it gets an invite for one node. Only machines between which nobody sits have the same code.
Without a code the machines that ask are listed, with what each should show.

A code that none of them has refuses all that ask: each has to ask again, and has another code then.
--refuse tells one machine at once that it is not let in; without a code all that ask. A request
that nobody answers ends after 5 minutes.`,
		Example: `  pnode admit                               who asks
  pnode admit 482913                        the machine that shows 482 913
  pnode admit --refuse 482913               not that one
  pnode admit --refuse                      none of those that ask now`,
		Args: usageArgs(cobra.MatchAll(cobra.MaximumNArgs(1), named)),
		RunE: func(c *cobra.Command, args []string) error {
			client, err := dial(c.Context(), dir)
			if err != nil {
				return err
			}
			defer client.Close()
			code := strings.Join(args, "")
			if refuse {
				done, err := client.Refuse(c.Context(), code)
				if err != nil {
					return err
				}
				_, err = fmt.Fprintln(e.stdout, done)
				return err
			}
			if code == "" {
				waiting, err := client.Newcomers(c.Context())
				if err != nil {
					return err
				}
				return e.listNewcomers(waiting, time.Now())
			}
			done, err := client.Admit(c.Context(), code)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.stdout, done)
			return err
		},
	}
	c.Flags().BoolVar(&refuse, "refuse", false, "say no to the machine that shows CODE, or to all that ask")
	c.Flags().StringVar(&dir, "dir", "", "`FOLDER` of the node to ask (default the newest one that runs)")
	return c
}

// listNewcomers prints who asks to be let in.
func (e environment) listNewcomers(waiting []api.Newcomer, now time.Time) error {
	if len(waiting) == 0 {
		_, err := fmt.Fprintln(e.stdout, "nobody in the local network asks to join")
		return err
	}
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tADDRESS\tCODE\tASKS SINCE")
	for _, n := range waiting {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", n.Name, n.Address, n.Code, plan.Duration(now.Sub(n.Since).Round(time.Second)))
	}
	return w.Flush()
}
