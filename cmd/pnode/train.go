package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"pnode/deploy/image"
	"pnode/node"
	"pnode/node/config"
	"pnode/node/local"
)

func (e environment) trainCommand() *cobra.Command {
	flags := config.Default()
	var file string
	var printConfig bool
	c := &cobra.Command{
		Use:   "train [--data PATH...]",
		Short: "Start a run, or continue one",
		Long: `Train a model: start a run, or continue one (--resume).

Every flag can also stand in a run file (--config run.yaml), with underscores for dashes. A flag
on the command line wins. --print-config shows the result. Progress goes to standard error;
--json adds one line for each step on standard output, and with --sample-every for each text.

A resumed run keeps the settings it was started with. --steps alone can move its end, of a finished
run too: the learning rate then stays at --min-lr after the steps for which it was made, so that
losses equal those of a run that began with both --steps and --decay-steps. Besides it only the settings of this machine can
change: --dir, --local, --cluster, --emulate, --name, --listen, --lan, --announce, --relay, --keep-whole,
--notices, --grace, --on-lost-majority, --threads, --devices, --memory, --sample-every, --sample-prompt, --trace, --tensorboard, --csv,
--mlflow, --otlp, --otlp-every, --metrics, --json, --log-level.

--cluster FILE emulates a cluster: one local node for each device, with the speed and the memory
of its entry, behind links with a bandwidth, a one-way latency, jitter and loss. The losses are
those of a real run:

  devices:
    - {count: 2, model: T4, matmul: 20GFLOP/s, bandwidth: 20GB/s, memory: 2GB}
    - {model: laptop, matmul: 5GFLOP/s, attention: 3GFLOP/s, bandwidth: 8GB/s, memory: 1GB}
    - {model: card, matmul: 9GFLOP/s, bandwidth: 9GB/s, memory: 600MB, copies: 4GB/s, host_memory: 2GB}
  link: {bandwidth: 1Gbit/s, latency: 1ms}      # between any two nodes
  links:                                        # instead of it; the last entry that fits and has begun counts
    - {between: [0-1, 2], bandwidth: 100Mbit/s, latency: 40ms, jitter: 2ms, loss: 0.1%}
    - {from: 2, to: 0, bandwidth: 20Mbit/s, latency: 40ms}
    - {between: [0, 1], after: 5m, loss: 100%}  # cut, five minutes after the start
  seed: 1                                       # of losses and jitter

"copies" gives a device memory of its own; "host_memory" is what its node has for optimizer state
that does not fit there. "call_time: 20us" is what each kernel call takes besides. "compute: none" computes nothing: it takes only the time and the memory
of a model of any size, and losses mean nothing. Nothing runs faster than this machine computes.
"slower: [{after: 5m, times: 3}, {after: 9m, times: 1}]" has a device take three times as long for a while.
--emulate FILE emulates one node: "device:" with these keys, "link:", and "links:" with
"to: IP:PORT" instead of node numbers. docs/examples has files of each kind.

Ctrl-C stops the run with a checkpoint; where other machines are in it, this one hands over what it
has, and they go on. A second Ctrl-C ends it at once, and says what is given up: steps after the last checkpoint, which are made again. A run of local nodes (--local) ends within three minutes of the
first Ctrl-C, or within 30 seconds where no majority of its nodes is up.`,
		Example: `  pnode train                                   a few minutes, on text of this machine
  pnode train --data book.txt --data notes/     on your own text
  pnode train --data c.parquet --column body    on the rows of a table, or of JSON Lines or CSV
  pnode train --local 3 --replicas 1            as a pipeline of three local nodes
  pnode train --cluster cluster.yaml            on an emulated cluster, see above
  pnode train --listen :4001                    let others join; prints an invite
  pnode train --lan                             let machines of the local network find it, and ask to join
  pnode train --sample-every 100 --sample-prompt "Once"    read what it writes meanwhile
  pnode train --resume                          continue the newest run
  pnode train --lr 1e-3 --print-config > run.yaml`,
		Args: usageArgs(cobra.ArbitraryArgs),
	}
	addTrainFlags(c.Flags(), &flags)
	c.Flags().StringVar(&file, "config", "", "read settings from the run file `FILE` (YAML)")
	c.Flags().BoolVar(&printConfig, "print-config", false, "print all settings as a run file and exit")
	e.screen = addScreen(c)
	e.runsNode(c, func(ctx context.Context, args []string) error {
		given := givenKeys(c.Flags())
		if len(args) > 0 && !given("data") {
			return usageError{c.CommandPath(), fmt.Errorf("unexpected %q: name text with --data", args[0])}
		}
		flags.Data = append(flags.Data, args...) // --data *.txt
		cfg, err := config.Effective(file, flags, given)
		if err != nil {
			return err
		}
		if printConfig && cfg.Resume {
			return usageError{c.CommandPath(), errors.New("--print-config shows the settings of a new run; one that is resumed keeps its own, which `pnode status` shows in part")}
		}
		if printConfig {
			return cfg.Print(e.stdout)
		}
		return e.train(ctx, cfg)
	})
	return c
}

func (e environment) train(ctx context.Context, cfg config.Config) error {
	if err := errors.Join(cfg.TryListen(), cfg.TryMetrics()); err != nil {
		return err
	}
	if !cfg.Resume { // what is resumed has its weights
		if err := e.haveModels(ctx, &cfg.Init, &cfg.LoRA); err != nil {
			return err
		}
	}
	if err := checkLoRA(cfg.LoRA); err != nil {
		return err
	}
	place, err := cfg.Place(time.Now())
	if err != nil {
		return taken(err, cfg.Dir)
	}
	if err := cfg.TryFiles(); err != nil {
		return errors.Join(err, place.Tidy())
	}
	cfg.Dir = place.Dir
	if cfg.Resume && cfg.Local == 0 && !config.Belongs(place.Dir) {
		cfg.Local = config.LocalNodes(place.Dir)
	}
	steps := cfg.Steps
	if cfg.Resume {
		steps = 0 // the run has its own number
	}
	w, ended := e.show(ctx, cfg, steps)
	defer ended()
	numbers, err := e.numbers(w, cfg)
	if err != nil {
		return errors.Join(err, place.Tidy())
	}
	defer numbers.Close()
	if warning := config.MakePrivate(cfg.Dir); warning != "" {
		w.Notice(warning)
	}
	if cfg.Local == 0 {
		err = e.interrupts.ended(node.Train(ctx, cfg, e.output(ctx, w, numbers, cfg)))
		numbers.Close()
		ended()
		return errors.Join(err, w.Close(), place.Tidy())
	}
	if cfg.Extends() > 0 {
		for _, dir := range config.NodeDirs(cfg.Dir) {
			if err := node.Reopen(dir, cfg.Extends()); err != nil && !errors.Is(err, node.ErrNoRun) {
				return errors.Join(err, w.Close())
			}
		}
	}
	binary, err := image.Executable()
	if err != nil {
		return errors.Join(err, w.Close(), place.Tidy())
	}
	nodes, err := local.New(local.Options{Nodes: cfg.Local, Dir: cfg.Dir, Config: cfg, Binary: binary, Output: withNumbers{w, numbers}, Newcomer: e.doorbell(ctx, cfg, w.Notice)})
	if err == nil {
		e.interrupts.beforeExit(nodes.Kill)
		err = nodes.Run(ctx)
		numbers.Close()
		ended()
	}
	if crash := (*local.NodeError)(nil); errors.As(err, &crash) && crash.Sentence == "" {
		return errors.Join(err, w.Close()) // the folder has the log that says why
	}
	return errors.Join(err, w.Close(), place.Tidy())
}
