package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/planner/plan"
)

func (e environment) inviteCommand() *cobra.Command {
	var ttl time.Duration
	var uses int
	c := &cobra.Command{
		Use:   "invite",
		Short: "Print an invite to the run of a node on this machine",
		Long: `Print a new invite: one string with the addresses of this node and the right to join the run.
Only the machine that started the run can make invites.`,
		Example: `  pnode invite
  pnode invite --ttl 10m --uses 20`,
		PreRunE: func(*cobra.Command, []string) error {
			if ttl < time.Second || ttl > api.MaxInviteTTL {
				return fmt.Errorf("%w: --ttl is %s: want 1s to %s", config.ErrInvalid, ttl, api.MaxInviteTTL)
			}
			if uses < 1 || uses > api.MaxInviteUses {
				return fmt.Errorf("%w: --uses is %d: want 1 to %d", config.ErrInvalid, uses, api.MaxInviteUses)
			}
			return nil
		},
	}
	withNode(c, func(ctx context.Context, client *api.Client) error {
		invite, err := client.Invite(ctx, ttl, uses)
		if err != nil {
			return err
		}
		until := time.Now().Add(ttl).Format("2006-01-02 15:04 MST")
		fmt.Fprintf(e.stderr, "%s may join with it, until %s:\n", plan.Count(uses, "node"), until) // the invite alone is for scripts
		_, err = fmt.Fprintln(e.stdout, invite)
		return err
	})
	c.Flags().DurationVar(&ttl, "ttl", 24*time.Hour, "time until it expires")
	c.Flags().IntVar(&uses, "uses", 1, "number of nodes that may use it")
	return c
}
