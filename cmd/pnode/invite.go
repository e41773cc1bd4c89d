package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/qrcode"
	"pnode/planner/plan"
)

func (e environment) inviteCommand() *cobra.Command {
	var r api.InviteRequest
	var list, asJSON, code bool
	c := &cobra.Command{
		Use:   "invite",
		Short: "Print an invite to the run of a node on this machine",
		Long: `Print a new invite: one short line with the address of this node and a secret that gives the right
to join the run. Only owners' nodes can make invites: the one that started the run, and those that
joined by an invite of --owner. Whoever has the text can use it; "pnode revoke" ends it.

The invite is noted in the run's log, and counted there for all nodes: it takes a majority of the
run's voters. A newcomer asks this node first, so that it must run.`,
		Example: `  pnode invite
  pnode invite --ttl 10m --uses 20
  pnode invite --qr                         as a code for a camera, too
  pnode invite --owner                      for a second owner, so that the run needs no single machine
  pnode invite --list`,
		PreRunE: func(*cobra.Command, []string) error {
			if r.TTL < time.Second || r.TTL > api.MaxInviteTTL {
				return fmt.Errorf("%w: --ttl is %s: want 1s to %s", config.ErrInvalid, r.TTL, api.MaxInviteTTL)
			}
			if r.Uses < 1 || r.Uses > api.MaxInviteUses {
				return fmt.Errorf("%w: --uses is %d: want 1 to %d", config.ErrInvalid, r.Uses, api.MaxInviteUses)
			}
			if code && list {
				return fmt.Errorf("%w: --qr is for a new invite: leave --list out", config.ErrInvalid)
			}
			if asJSON && !list {
				return fmt.Errorf("%w: --json is for --list", config.ErrInvalid)
			}
			return nil
		},
	}
	withNode(c, func(ctx context.Context, client *api.Client) error {
		if list {
			return e.listInvites(ctx, client, asJSON)
		}
		invite, err := client.Invite(ctx, r)
		if err != nil {
			return err
		}
		may := "may join with it"
		if r.Owner {
			may = "may join with it as owners, who invite, revoke and stop the run like you"
		}
		until := time.Now().Add(r.TTL).Format("2006-01-02 15:04 MST")
		fmt.Fprintf(e.stderr, "%s %s, until %s:\n", plan.Count(r.Uses, "node"), may, until) // the invite alone is for scripts
		if _, err := fmt.Fprintln(e.stdout, invite); err != nil || !code {
			return err
		}
		return e.drawCode(invite)
	})
	c.Flags().DurationVar(&r.TTL, "ttl", 24*time.Hour, "time until it expires")
	c.Flags().IntVar(&r.Uses, "uses", 1, "number of nodes that may use it")
	c.Flags().BoolVar(&r.Owner, "owner", false, "make owners of the nodes that use it")
	c.Flags().BoolVar(&code, "qr", false, "draw it as a QR code, too, on standard error")
	c.Flags().BoolVar(&list, "list", false, "list the run's invites, and who came by each, instead")
	c.Flags().BoolVar(&asJSON, "json", false, "with --list, print one JSON object for each")
	return c
}

// drawCode draws a text as a QR code beside what scripts read.
func (e environment) drawCode(text string) error {
	drawn, err := qrcode.Terminal(text, isTerminal(e.stderr) && os.Getenv("TERM") != "dumb")
	if err == nil {
		_, err = io.WriteString(e.stderr, drawn)
	}
	return err
}

// listInvites prints the invites of the run, the oldest first.
func (e environment) listInvites(ctx context.Context, client *api.Client, asJSON bool) error {
	invites, err := client.Invites(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		out := json.NewEncoder(e.stdout)
		for _, i := range invites {
			if err := out.Encode(i); err != nil {
				return err
			}
		}
		return nil
	}
	return printInvites(e.stdout, invites, time.Now())
}

func printInvites(to io.Writer, invites []api.Invite, now time.Time) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "SERIAL\tROLE\tLEFT\tSTATE\tENDS IN\tMADE BY\tCAME BY IT")
	for _, i := range invites {
		ends := "-"
		if i.State == "open" {
			ends = plan.Duration(i.RedeemBefore.Sub(now).Round(time.Second))
		}
		fmt.Fprintf(w, "%s\t%s\t%s of %s\t%s\t%s\t%s\t%s\n", i.Serial, i.Role, strconv.Itoa(i.Left), strconv.Itoa(i.Uses), i.State, ends, i.By, strings.Join(i.Peers, ", "))
	}
	return w.Flush()
}
