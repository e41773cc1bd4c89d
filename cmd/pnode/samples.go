package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/config"
	"pnode/planner/plan"
)

func (e environment) samplesCommand() *cobra.Command {
	var dir string
	var step uint64
	var steps int
	var asJSON bool
	c := &cobra.Command{
		Use:   "samples --step N",
		Short: "Show which samples a step trains on",
		Long: `Print what a step trains on: for each row its epoch, the number of its sample within the epoch,
and the first token of the sample in the data. This is computed, not recorded: every node prints
the same, for past and future steps, and every sample comes once in an epoch.`,
		Example: `  pnode samples --step 100
  pnode samples --step 1 --steps 50 --json | jq .index`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if step < 1 {
				return usageError{c.CommandPath(), errors.New("--step is 0, or missing: want 1 or more")}
			}
			if steps < 1 {
				return usageError{c.CommandPath(), fmt.Errorf("--steps is %d: want 1 or more", steps)}
			}
			return e.samples(c.Context(), dir, plan.Step(step), steps, asJSON)
		},
	}
	c.Flags().Uint64Var(&step, "step", 0, "first `STEP` to show, from 1")
	c.Flags().IntVar(&steps, "steps", 1, "number of steps to show")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each row")
	c.Flags().StringVar(&dir, "dir", "", "`FOLDER` of the run or node (default the newest run's)")
	return c
}

func (e environment) samples(ctx context.Context, dir string, first plan.Step, steps int, asJSON bool) error {
	dir, err := config.Existing(dir)
	if err != nil {
		return err
	}
	if dirs := config.NodeDirs(dir); len(dirs) > 0 && !config.Belongs(dir) {
		dir = dirs[0] // local nodes of one run have the same samples
	}
	sampler, err := node.OpenSampler(dir)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	lines := json.NewEncoder(e.stdout)
	if !asJSON {
		fmt.Fprintf(table, "STEP\tROW\tEPOCH\tSAMPLE\tOF\tFIRST TOKEN\t\n")
	}
	for i := range steps {
		rows, err := sampler.Step(first + plan.Step(i))
		if err := errors.Join(err, ctx.Err()); err != nil {
			return err
		}
		for _, s := range rows {
			if !asJSON {
				fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t\n", s.Step, s.Row, s.Epoch, s.Index, sampler.EpochSamples(), s.Token)
			} else if err := lines.Encode(s); err != nil {
				return err
			}
		}
	}
	return table.Flush()
}
