package main

import (
	"encoding/json"
	"errors"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/config"
)

func (e environment) auditCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "audit [FOLDER]...",
		Short: "Prove that every sample of every committed step entered exactly once",
		Long: `Compare what the nodes of a run wrote down of each step: which micro-batches each added to the
gradient of which layers, and the loss and gradient norm that all agreed on. Name the folders of all
nodes, also of those that left; the folder of a run of local nodes stands for all of them. Without a
folder it is the newest run's. Nodes may run meanwhile.

A step counts once all workers of its plan have reported. A worker whose folder is not named, or is
gone, is vouched for by the commit in the other folders. Nodes without a part in a step write down what
members of its plan told them: where all who computed it are gone, the step counts by that. Steps that
a recovery of the run left out are named as discarded. The exit code is 1 when a sample was lost or
doubled, when two nodes tell different losses of a step, when a ledger is damaged, or when it ends before
the checkpoint in its folder and the other ledgers do not prove the steps between.`,
		Example: `  pnode audit
  pnode audit ~/run7/node-0 ~/run7/node-1
  pnode audit ~/run7 --json | jq .lost`,
		Args: usageArgs(named),
		RunE: func(_ *cobra.Command, dirs []string) error {
			if len(dirs) == 0 {
				dir, err := config.Existing("")
				if err != nil {
					return err
				}
				dirs = []string{dir}
			}
			report, err := node.Audit(dirs)
			if err != nil {
				return err
			}
			if asJSON {
				err = json.NewEncoder(e.stdout).Encode(report)
			} else {
				err = report.Print(e.stdout)
			}
			return errors.Join(err, report.Err())
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}
