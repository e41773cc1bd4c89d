package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"pnode/node"
	"pnode/node/config"
	"pnode/node/hardware"
	"pnode/node/ingest"
	"pnode/node/leader"
	"pnode/planner"
	"pnode/planner/plan"
	planreport "pnode/planner/report"
)

// planFlags holds what the command takes besides the run's settings.
type planFlags struct {
	file     string // with settings
	nodes    int
	svg      string
	why, all bool
	asJSON   bool
}

func (e environment) planCommand() *cobra.Command {
	flags, o := config.Default(), planFlags{}
	c := &cobra.Command{
		Use:   "plan",
		Short: "Show how a run would be split, how fast it would be, and what would use idle machines",
		Long: `Plan a run without starting it, for the devices of an emulated cluster, or for --nodes machines
like this one, which is measured. Prints who computes which layers in how much of its memory,
tokens a second, the time to the end of --steps, where the time of a step goes, who is left out
and why, and which other flags would use more machines or be faster, --sync local among them: each of
these was planned, too. The loss of packets on a cluster's links is not part of the prediction. Of
more than 16 devices it shows groups of like ones, the slowest and the fullest. Takes the flags and the run file of
train, or with --dir the settings of the run in that folder; docs/planning.md explains each figure.`,
		Example: `  pnode plan --preset gpt2-124m
  pnode plan --preset gpt2-124m --nodes 4 --micros 16 --micro-batch 1
  pnode plan --preset gpt2-124m --cluster docs/examples/fleet-gaming.yaml
  pnode plan --preset gpt2-124m --cluster cluster.yaml --sync local
  pnode plan --preset llama-160m --cluster cluster.yaml --replicas 2 --svg step.svg
  pnode plan --cluster cluster.yaml --json | jq .report.tokens_per_s`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Effective(o.file, flags, givenKeys(c.Flags()))
			if err != nil {
				return err
			}
			if cfg.Cluster != "" && c.Flags().Changed("nodes") {
				return usageError{c.CommandPath(), fmt.Errorf("--nodes is %d: leave it out, the file for --cluster has %d devices", o.nodes, cfg.Local)}
			}
			if o.nodes < 1 || o.nodes > planner.MaxMembers {
				return usageError{c.CommandPath(), fmt.Errorf("--nodes is %d: want 1 to %d", o.nodes, planner.MaxMembers)}
			}
			return e.plan(c.Context(), cfg, o)
		},
	}
	addTrainFlags(c.Flags(), &flags)
	c.Flags().StringVar(&o.file, "config", "", "read settings from the run file `FILE` (YAML)")
	c.Flags().IntVar(&o.nodes, "nodes", 1, "plan for this many nodes like this one")
	c.Flags().StringVar(&o.svg, "svg", "", "draw the plan's step to `FILE`")
	c.Flags().BoolVar(&o.why, "why", false, "print every reason of the planner, too: a line for each stage, choice and node")
	c.Flags().BoolVar(&o.all, "all", false, "show each of many devices")
	c.Flags().Lookup("dir").Usage = "plan the run in `FOLDER`, if one is there"
	c.Flags().Lookup("steps").Usage = "optimizer updates"
	c.Flags().Lookup("json").Usage = "print one JSON object: the plan, its reasons, and the report"
	for _, other := range notPlanned {
		c.Flags().Lookup(other).Hidden = true // of train alone
	}
	c.PreRun = func(*cobra.Command, []string) { o.asJSON, flags.JSON = flags.JSON, false }
	return c
}

// notPlanned names flags of train that no plan depends on. They are accepted, so that the flags of a run can be
// pasted.
var notPlanned = []string{
	"resume", "name", "listen", "lan", "await-holders", "sample-every", "sample-prompt", "local", "log-level", "announce", "relay", "keep-whole", "notices", "grace", "on-lost-majority", "trace", "tensorboard", "csv", "mlflow", "otlp", "otlp-every", "metrics",
	"min-nodes", "voters", "await-owner", "sample-bytes", "keep", "held-out-every", "lr", "min-lr", "warmup-steps", "decay-steps", "weight-decay",
	"clip-norm", "seed", "data", "data-limit", "column", "skip-malformed",
}

func (e environment) plan(ctx context.Context, cfg config.Config, o planFlags) error {
	name := cmp.Or(cfg.Init, cfg.Preset)
	if err := findModels(&cfg.Init, &cfg.LoRA); err != nil {
		return err
	}
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
	warning := ingest.PlannedRepeats(cfg, spec)
	if dir := config.Absolute(cfg.Dir); dir != "" && config.Belongs(dir) { // the flags of a run that is there already change nothing of it
		if spec, err = node.LoadRun(dir); err != nil {
			return err
		}
		name, warning = "the run in "+dir, ingest.Repeats(spec)
	}
	if warning != "" {
		fmt.Fprintln(e.stderr, warning)
	}
	machine, err := hardware.OptionsOf(cfg)
	if err != nil {
		return err
	}
	machine.Dir, machine.Probe, machine.Log = os.TempDir(), e.probe, slog.New(slog.NewTextHandler(e.stderr, nil))
	members, err := hardware.DryRun(ctx, cfg.Cluster, o.nodes, machine)
	if err != nil {
		return err
	}
	dry := dryRun{members}
	r, d, err := dry.report(ctx, name, spec)
	if err != nil {
		return err
	}
	if o.svg != "" {
		if err := writePicture(o.svg, r); err != nil {
			return err
		}
	}
	if o.asJSON {
		return json.NewEncoder(e.stdout).Encode(struct {
			Plan    plan.Plan         `json:"plan"`
			Reasons plan.Reasons      `json:"reasons"`
			Report  planreport.Report `json:"report"`
		}{d.Plan, d.Reasons, r})
	}
	write := r.Brief
	if o.all {
		write = r.Text
	}
	if err := write(e.stdout); err != nil || !o.why {
		return err
	}
	fmt.Fprintf(e.stdout, "\nWhy\n%s\n", strings.Join(d.Reasons.Lines(), "\n"))
	return nil
}

// dryRun plans runs that nobody starts, for the same members.
type dryRun struct{ members []planner.Member }

// report plans a run, and with other settings where these may be better. Where a run does not fit, the error has the
// flags under which it does.
func (dry dryRun) report(ctx context.Context, model string, spec plan.RunSpec) (planreport.Report, planner.Details, error) {
	in, sums, err := dry.input(spec)
	if err != nil {
		return planreport.Report{}, planner.Details{}, err
	}
	d, err := planner.MakeWithDetails(ctx, in)
	if errors.Is(err, planner.ErrNoFit) {
		if flags, _ := planreport.Fitting(ctx, spec, dry.plan); flags != "" {
			err = fmt.Errorf("%w; it fits with %s", err, flags)
		}
	}
	if err != nil {
		return planreport.Report{}, d, err
	}
	notes := []string{sums}
	if warmup, err := planreport.AfterWarmup(ctx, spec, dry.plan); err != nil {
		return planreport.Report{}, d, err
	} else if warmup != "" {
		notes = append(notes, warmup)
	}
	r := planreport.New(model, in, d, notes...)
	r.Variants, r.Tried, err = planreport.Variants(ctx, spec, d, dry.plan)
	return r, d, err
}

// plan is a planreport.Planner.
func (dry dryRun) plan(ctx context.Context, spec plan.RunSpec) (planner.Details, error) {
	in, _, err := dry.input(spec)
	if err != nil {
		return planner.Details{}, err
	}
	return planner.MakeWithDetails(ctx, in)
}

// input returns what a run's plan depends on, with its sum groups settled, and for people what these are.
func (dry dryRun) input(spec plan.RunSpec) (in planner.Input, sums string, err error) {
	in = leader.FirstInput(spec)
	in.Members = dry.members
	sums, err = leader.SettleSums(&in.Run, roomiest(in.Members))
	return in, sums, err
}

// roomiest returns the most memory of any of the first member's devices: it stands for the run's founder.
func roomiest(members []planner.Member) (bytes int64) {
	for _, d := range members[0].Profile.Devices {
		bytes = max(bytes, d.MemoryFreeBytes)
	}
	return bytes
}
