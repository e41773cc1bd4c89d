package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/config"
	"pnode/node/ledger"
	"pnode/node/progress"
)

func (e environment) auditCommand() *cobra.Command {
	var asJSON, recompute bool
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
the checkpoint in its folder and the other ledgers do not prove the steps between.

--recompute proves the model too: it trains the run again here, alone, by the plans and outer steps that
the folders tell of, and compares each layer of the newest checkpoint, each loss, and each message of a
replica with local steps to the bit. Its nodes must be stopped. It takes as long as this processor needs
for the whole run, and the memory of all its replicas. Each node's part is computed with the instructions
that its ledger names (as with PNODE_CPU). Where no folder tells them, or this processor lacks them, last
digits may differ: then nobody is called wrong, and the exit code is 1 all the same.`,
		Example: `  pnode audit
  pnode audit ~/run7/node-0 ~/run7/node-1
  pnode audit ~/run7 --json | jq .lost
  pnode audit ~/run7/node-0 ~/run7/node-1 --recompute`,
		Args: usageArgs(named),
		RunE: func(c *cobra.Command, dirs []string) error {
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
			out := struct {
				ledger.Report
				Recomputed *node.Recomputed `json:"recomputed,omitempty"`
			}{Report: report}
			if !asJSON {
				err = report.Print(e.stdout)
			}
			if recompute && err == nil {
				again, failed := e.recompute(c.Context(), dirs)
				if failed != nil {
					return errors.Join(report.Err(), failed)
				}
				out.Recomputed = &again
				if !asJSON {
					err = again.Print(e.stdout)
				}
			}
			if asJSON {
				err = json.NewEncoder(e.stdout).Encode(out)
			}
			err = errors.Join(err, report.Err())
			if out.Recomputed != nil {
				err = errors.Join(err, out.Recomputed.Err())
			}
			return err
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	c.Flags().BoolVar(&recompute, "recompute", false, "train the run again here by what the folders tell, and compare the model")
	return c
}

// recompute trains a run again, and shows how far it has come.
func (e environment) recompute(ctx context.Context, dirs []string) (node.Recomputed, error) {
	var bar *progress.Bar
	defer func() {
		if bar != nil {
			bar.Close()
		}
	}()
	return node.Recompute(ctx, node.RecomputeOptions{Dirs: dirs, OnStep: func(done, of int) {
		if bar == nil {
			bar = progress.NewBar(e.stderr, isTerminal(e.stderr), "training again", int64(of), time.Now)
		}
		bar.At(int64(done))
	}})
}
