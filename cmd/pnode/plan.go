package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/config"
	"pnode/node/hardware"
	"pnode/node/leader"
	"pnode/planner"
	"pnode/planner/plan"
)

func (e environment) planCommand() *cobra.Command {
	flags := config.Default()
	var file string
	var nodes int
	var asJSON bool
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show how a run would be split, and the memory it needs, without starting it",
		Long: `Measure this machine and plan a run for --nodes machines like it, or for the devices of an
emulated cluster. The plan has stages, replicas, layer ranges, the predicted time of a step, and
the peak memory of each stage with what is free. The loss of packets on a cluster's links is not
part of the prediction. Takes the flags and the run file of train.`,
		Example: `  pnode plan --preset gpt2-124m
  pnode plan --preset gpt2-124m --nodes 4 --micros 16 --micro-batch 1
  pnode plan --preset llama-160m --cluster cluster.yaml --replicas 2
  pnode plan --json | jq .plan`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Effective(file, flags, givenKeys(c.Flags()))
			if err != nil {
				return err
			}
			if cfg.Cluster != "" && c.Flags().Changed("nodes") {
				return usageError{c.CommandPath(), fmt.Errorf("--nodes is %d: leave it out, the file for --cluster has %d devices", nodes, cfg.Local)}
			}
			if nodes < 1 {
				return usageError{c.CommandPath(), fmt.Errorf("--nodes is %d: want 1 or more", nodes)}
			}
			return e.plan(c.Context(), cfg, nodes, asJSON)
		},
	}
	addTrainFlags(c.Flags(), &flags)
	c.Flags().StringVar(&file, "config", "", "read settings from the run file `FILE` (YAML)")
	c.Flags().IntVar(&nodes, "nodes", 1, "plan for this many nodes like this one")
	c.Flags().Lookup("json").Usage = "print one JSON object: the plan and its reasons"
	for _, other := range []string{"dir", "resume", "name", "listen", "local", "log-level"} {
		c.Flags().Lookup(other).Hidden = true // of train alone
	}
	c.PreRun = func(*cobra.Command, []string) { asJSON, flags.JSON = flags.JSON, false }
	return c
}

func (e environment) plan(ctx context.Context, cfg config.Config, nodes int, asJSON bool) error {
	if err := checkLoRA(cfg.LoRA); err != nil {
		return err
	}
	m, err := node.InitialModel(ctx, cfg)
	if err != nil {
		return err
	}
	spec, err := cfg.RunSpec(m, plan.DataSpec{}, "plan")
	if err != nil {
		return err
	}
	in := leader.FirstInput(spec)
	machine, err := hardware.OptionsOf(cfg)
	if err != nil {
		return err
	}
	machine.Dir, machine.Probe, machine.Log = os.TempDir(), e.probe, slog.New(slog.NewTextHandler(e.stderr, nil))
	if in.Members, err = hardware.DryRun(ctx, cfg.Cluster, nodes, machine); err != nil {
		return err
	}
	sums, err := leader.SettleSums(&in.Run, roomiest(in.Members))
	if err != nil {
		return err
	}
	p, reasons, err := planner.Make(ctx, in)
	if err != nil {
		return err
	}
	if asJSON {
		return json.NewEncoder(e.stdout).Encode(struct {
			Plan    plan.Plan    `json:"plan"`
			Reasons plan.Reasons `json:"reasons"`
		}{p, reasons})
	}
	for _, line := range append(reasons.Lines(), sums) {
		fmt.Fprintln(e.stdout, line)
	}
	return nil
}

// roomiest returns the most memory of any of the first member's devices: it stands for the run's founder.
func roomiest(members []planner.Member) (bytes int64) {
	for _, d := range members[0].Profile.Devices {
		bytes = max(bytes, d.MemoryFreeBytes)
	}
	return bytes
}
