package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/api"
	"pnode/node/config"
)

func (e environment) recoverCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "recover",
		Short: "Go on with a run whose majority of voters is lost for good",
		Long: `Tell a waiting node of this machine that the voters it waits for are gone for good. Of the nodes that
answer, the one with the newest log goes on with the run as its only voter, and the others follow it:
from the newest state of which they have all parts, in memory or in a checkpoint. Votes are given anew from there.

This is your statement that the lost voters are dead. It is refused while a majority of voters answers,
and unless nobody who answers has heard of the lost ones for 10 minutes. If they live after all, beyond
a network that is cut, both parts may go on: later one part's steps since then are discarded, and it
joins the other one again. What counts is the part that was recovered, if an owner's node or more than
half of the members took part in that, and else the one with the majority. docs/recovery.md has the rules.

A node that is not running is started and recovers the run by itself with

  pnode train --resume --on-lost-majority recover-after=10m --dir FOLDER`,
		Example: `  pnode recover
  pnode recover --dir ~/run7`,
	}
	withNode(c, func(ctx context.Context, client *api.Client) error {
		r, err := client.Recover(ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(e.stdout, r.Text())
		return err
	})
	running := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		err := running(c, args)
		if dir := c.Flag("dir").Value.String(); dir != "" && errors.Is(err, api.ErrNoNode) && config.Belongs(dir) {
			err = node.RecoverStopped(dir)
		}
		return err
	}
	return c
}
