package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pnode/node/api"
	"pnode/node/config"
)

func (e environment) revokeCommand() *cobra.Command {
	var r api.RevokeRequest
	var dir string
	c := &cobra.Command{
		Use:   "revoke NODE|INVITE",
		Short: "Remove a node from the run, or end an invite",
		Long: `Remove a node from the run for good, or end an invite before its time. Only owners' nodes can.

A node is named as "pnode status" shows it: by its name, its peer ID, or the end of that. All other
nodes cut it off at once and do not let it in again, by no invite and after no restart; it is told
so, with the reason. An invite is named by its text, or by its serial in "pnode invite --list".
Nodes that came by it stay, unless --members removes them too.`,
		Example: `  pnode revoke ada --reason "sends nonsense"
  pnode revoke 3f9a01
  pnode revoke pnode1-... --members`,
		Args: usageArgs(cobra.MatchAll(one("a node or an invite"), named)),
		PreRunE: func(*cobra.Command, []string) error {
			if len(r.Reason) > api.MaxReasonBytes || strings.ContainsFunc(r.Reason, func(c rune) bool { return c < ' ' }) {
				return fmt.Errorf("%w: --reason: want one line of at most %d bytes", config.ErrInvalid, api.MaxReasonBytes)
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			client, err := dial(c.Context(), dir)
			if err != nil {
				return err
			}
			defer client.Close()
			r.Target = args[0]
			done, err := client.Revoke(c.Context(), r)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(e.stdout, done)
			return err
		},
	}
	c.Flags().StringVar(&dir, "dir", "", "`FOLDER` of the node to ask (default the newest one that runs)")
	c.Flags().StringVar(&r.Reason, "reason", "", "`TEXT` that the removed node and the others are told")
	c.Flags().BoolVar(&r.Members, "members", false, "remove also the nodes that came by the invite")
	return c
}
