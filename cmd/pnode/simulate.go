package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pnode/node"
	"pnode/node/config"
	"pnode/node/hardware"
	"pnode/node/leader"
	"pnode/node/progress"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/planner/simulate"
)

// simulateFlags holds the flags of the command besides those of train.
type simulateFlags struct {
	nodes                     int
	span, every, back, notice time.Duration
	policies                  []string
	constants                 string
	price                     float64
	asJSON                    bool
	svg                       string
}

func (e environment) simulateCommand() *cobra.Command {
	flags := config.Default()
	var file string
	var o simulateFlags
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Play a whole run through on machines that come and go, without computing anything",
		Long: `Play a run through, from the first machine to the last, with the planner's own plans: steps, losses,
notices, joins, state on the way and checkpoints. Hours take seconds. Other answers to losses are
played beside pnode's: plans for every number of machines (templates), checkpoint-restart, and
redundant computation.

A trace has lines such as 600000,remove,node5: milliseconds, add, notice or remove, and a name. Without
--trace machines are lost at random. The devices of --cluster are taken over and over where there are
more machines. Takes the flags and the run file of train, without local steps (--sync local).`,
		Example: `  pnode simulate --cluster docs/examples/cluster.yaml --preset small-10m
  pnode simulate --cluster docs/examples/fleet-spot.yaml --preset gpt2-124m --nodes 16 --every 10m --seed 7
  pnode simulate --cluster docs/examples/fleet-spot.yaml --preset gpt2-124m --trace trace.csv --notice 2m --price 0.9
  pnode simulate --cluster docs/examples/fleet-spot.yaml --preset gpt2-124m --nodes 16 --every 10m --svg run.svg
  pnode simulate --cluster docs/examples/cluster.yaml --preset small-10m --policy pnode --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Effective(file, flags, givenKeys(c.Flags()))
			if err != nil {
				return err
			}
			if err := o.check(cfg, c.Flags()); err != nil {
				return usageError{c.CommandPath(), err}
			}
			return e.simulate(c.Context(), cfg, o)
		},
	}
	addTrainFlags(c.Flags(), &flags)
	c.Flags().StringVar(&file, "config", "", "read settings from the run file `FILE` (YAML)")
	o.add(c.Flags())
	c.PreRun = func(*cobra.Command, []string) { o.asJSON, flags.JSON = flags.JSON, false }
	return c
}

func (o *simulateFlags) add(f *pflag.FlagSet) {
	f.IntVar(&o.nodes, "nodes", 0, "machines that the run begins with, where there is no --trace (default the devices of --cluster)")
	f.DurationVar(&o.span, "span", 24*time.Hour, "how long to play, where there is no --trace")
	f.DurationVar(&o.every, "every", time.Hour, "mean `TIME` from one loss to the next, where there is no --trace")
	f.DurationVar(&o.back, "back", 30*time.Minute, "mean `TIME` until another machine comes for a lost one, where there is no --trace; 0s is never")
	f.DurationVar(&o.notice, "notice", 0, "each machine is told so long before that it will go, as 2m at AWS and 30s at GCP; 0s tells nobody")
	f.StringSliceVar(&o.policies, "policy", []string{"all"}, "`NAMES` of what is played: pnode, templates, checkpoint-restart, redundant, or all")
	f.StringVar(&o.constants, "constants", "measured", "`WHOSE` times of recovery count: measured are pnode's own, oobleck those of that paper's simulator")
	f.Float64Var(&o.price, "price", 0, "price of a machine for an hour, in any currency")
	f.StringVar(&o.svg, "svg", "", "draw steps and machines over time to `FILE`")
	f.Lookup("trace").Usage = "`FILE` with what happens to machines (CSV)"
	f.Lookup("seed").Usage = "seed of the losses, where there is no --trace"
	f.Lookup("json").Usage = "print one JSON object for each policy"
	for _, other := range []string{"dir", "resume", "name", "listen", "lan", "await-holders", "await-owner", "voters", "min-nodes", "sample-bytes", "sample-every", "sample-prompt", "local", "log-level", "steps", "announce", "relay", "keep-whole", "notices", "grace", "on-lost-majority", "threads", "devices", "memory", "emulate", "tensorboard", "csv", "mlflow", "otlp", "otlp-every", "metrics"} {
		f.Lookup(other).Hidden = true // of train alone
	}
}

// maxPrice bounds the price of a machine for an hour.
const maxPrice = 1e6

func (o *simulateFlags) check(cfg config.Config, f *pflag.FlagSet) error {
	switch {
	case cfg.Cluster == "":
		return errors.New("--cluster is missing: want a file with the devices, such as docs/examples/cluster.yaml")
	case cfg.Sync != plan.SyncRule{}.String():
		return fmt.Errorf("--sync is %s: want every-step: what the loss of a replica with local steps costs is not simulated; `pnode plan` says how fast such a run is", cfg.Sync)
	case cfg.Trace != "" && (f.Changed("nodes") || f.Changed("span") || f.Changed("every") || f.Changed("back")):
		return errors.New("--trace says when machines come and go: leave --nodes, --span, --every and --back out")
	case o.notice < 0:
		return fmt.Errorf("--notice is %v: want 0s or more", o.notice)
	case math.IsNaN(o.price) || o.price < 0 || o.price > maxPrice:
		return fmt.Errorf("--price is %v: want 0 to %v", o.price, maxPrice)
	}
	return nil
}

func (e environment) simulate(ctx context.Context, cfg config.Config, o simulateFlags) error {
	policies, err := simulate.PoliciesNamed(o.policies)
	if err != nil {
		return err
	}
	sim, err := simulation(ctx, cfg, o)
	if err != nil {
		return err
	}
	report := simulate.Report{PriceMillis: int64(math.Round(o.price * 1000)), Trace: sim.Trace, Constants: sim.Constants}
	for _, p := range policies {
		bar := progress.NewBar(e.stderr, isTerminal(e.stderr), p.Name(), sim.Trace.EndNanos, time.Now)
		sim.Progress = func(at, _ int64) { bar.At(at) }
		r, err := sim.Play(p)
		if err != nil {
			return err
		}
		bar.Close()
		report.Results = append(report.Results, r)
	}
	report.Searches = sim.Searches()
	if o.svg != "" {
		if err := writePicture(o.svg, report); err != nil {
			return err
		}
	}
	if o.asJSON {
		return report.JSON(e.stdout)
	}
	return report.Text(e.stdout)
}

// simulation returns what the settings describe.
func simulation(ctx context.Context, cfg config.Config, o simulateFlags) (*simulate.Simulator, error) {
	constants, err := simulate.ConstantsNamed(o.constants)
	if err != nil {
		return nil, err
	}
	fleet, err := hardware.Fleet(cfg.Cluster)
	if err != nil {
		return nil, err
	}
	trace, err := o.traceOf(cfg, len(fleet.Machines))
	if err != nil {
		return nil, err
	}
	if err := findModels(&cfg.Init, &cfg.LoRA); err != nil {
		return nil, err
	}
	m, err := node.InitialModel(ctx, cfg)
	if err != nil {
		return nil, err
	}
	spec, err := cfg.RunSpec(m, plan.DataSpec{}, "simulate")
	if err != nil {
		return nil, err
	}
	in := leader.FirstInput(spec)
	if _, err := leader.SettleSums(&in.Run, fleet.Machines[0].Device.MemoryFreeBytes); err != nil {
		return nil, err
	}
	return simulate.New(simulate.Config{
		Fleet: fleet, Input: in, Trace: trace, Constants: constants,
		Make: func(in planner.Input) (plan.Plan, plan.Reasons, error) { return planner.Make(ctx, in) },
	})
}

// traceOf reads the trace of the settings, or makes one for so many devices.
func (o simulateFlags) traceOf(cfg config.Config, devices int) (t simulate.Trace, err error) {
	if cfg.Trace == "" {
		if o.nodes == 0 {
			o.nodes = devices
		}
		t, err = simulate.Synthetic{
			Nodes: o.nodes, SpanNanos: int64(o.span), EveryNanos: int64(o.every), BackNanos: int64(o.back), Seed: cfg.Seed,
		}.Trace()
	} else {
		t, err = readTrace(cfg.Trace)
	}
	if err == nil && o.notice > 0 {
		t = t.Noticed(int64(o.notice))
	}
	return t, err
}

// readTrace reads a trace from a file, no more of it than a trace may have.
func readTrace(name string) (simulate.Trace, error) {
	f, err := os.Open(name)
	if err != nil {
		return simulate.Trace{}, err
	}
	defer func() { _ = f.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, simulate.MaxTraceBytes+1))
	if err != nil {
		return simulate.Trace{}, err
	}
	t, err := simulate.ParseTrace(string(text))
	if err != nil {
		return simulate.Trace{}, fmt.Errorf("%s: %w", name, err)
	}
	return t, nil
}
