package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/api"
	"pnode/node/config"
	"pnode/node/inventory"
	"pnode/node/plain"
	"pnode/node/progress"
)

func (e environment) psCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "ps",
		Short: "List the nodes of this machine, and how to go on with each",
		Long: `List the nodes that this user has started on this machine, wherever their folders are: those that
run first, then those that were interrupted or are finished. Each has its run, its folder, its
step, and the command that shows it or goes on with it. Folders that were removed are left out.`,
		Example: `  pnode ps
  pnode ps --json | jq '.[] | select(.running) | .dir'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			i, err := nodesHere()
			if err != nil {
				return err
			}
			all := i.List(c.Context())
			if asJSON {
				if all == nil {
					all = []inventory.Node{}
				}
				return errors.Join(i.Register.Damage(), json.NewEncoder(e.stdout).Encode(all))
			}
			return errors.Join(i.Register.Damage(), progress.Nodes(e.stdout, all, time.Now()))
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return c
}

// nodesHere returns the inventory of this user's nodes.
func nodesHere() (inventory.Inventory, error) {
	root, err := config.DefaultDir()
	if err != nil {
		return inventory.Inventory{}, err
	}
	state, err := config.StateDir()
	return inventory.Inventory{Register: inventory.Register{Dir: filepath.Join(state, "nodes")}, Root: root, Look: node.Look}, err
}

// noteNode has `pnode ps` find the node of a folder. A node runs as well where that is not possible.
func noteNode(dir string, log *slog.Logger) {
	i, err := nodesHere()
	if err == nil {
		err = i.Register.Note(dir, time.Now())
	}
	if err != nil {
		log.Info("`pnode ps` may not find this node", "cause", err)
	}
}

// newest returns the node that runs and was started last.
func newest(ctx context.Context) (*api.Client, error) {
	i, err := nodesHere()
	if err != nil {
		return nil, err
	}
	for _, f := range i.Folders() {
		client, err := api.Dial(ctx, f.Folder)
		if !errors.Is(err, api.ErrNoNode) {
			return client, err
		}
	}
	all := i.List(ctx)
	if len(all) == 0 {
		if err := i.Register.Damage(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("%w on this machine: start one with `pnode train` or `pnode join`, or name its folder with --dir", api.ErrNoNode)
	}
	last := all[0]
	if last.Running { // it has no address yet, or had none just now
		return nil, fmt.Errorf("%w on this machine that answers; one, in %s, is %s: look again with `%s`; `pnode ps` lists all", api.ErrNoNode, last.Dir, last.State, last.Next)
	}
	return nil, fmt.Errorf("%w on this machine; the newest, in %s, is %s: go on with `%s`; `pnode ps` lists all", api.ErrNoNode, last.Dir, last.State, last.Next)
}

// elsewhere names folders in which nodes run, for an error about one in which none does; empty for none.
func elsewhere(ctx context.Context) string {
	i, err := nodesHere()
	if err != nil {
		return ""
	}
	var commands []string
	for _, n := range i.List(ctx) {
		if n.Running {
			commands = append(commands, "--dir "+plain.Quote(n.Dir))
		}
	}
	if len(commands) == 0 {
		return ""
	}
	const most = 3
	text := strings.Join(commands[:min(most, len(commands))], " or ")
	if more := len(commands) - most; more > 0 {
		text += fmt.Sprintf(" (`pnode ps` has %d more)", more)
	}
	return ". Nodes run elsewhere: " + text
}
