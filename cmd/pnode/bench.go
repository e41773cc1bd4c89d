package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"pnode/deploy/image"
	"pnode/node/bench"
	"pnode/node/bench/decoding"
	"pnode/node/config"
	"pnode/node/progress"
	"pnode/planner/plan"
)

func (e environment) benchCommand() *cobra.Command {
	var worker string
	c := &cobra.Command{
		Use:   "bench",
		Short: "Measure kernels, training steps and how they grow, generated text, schedules, GPUs, plans and sums of gradients",
		Long: `Measure this machine and compare it with other programs, on the same cores in the same run. Both
sides take turns; figures are medians. Leave the machine alone meanwhile.
PNODE_CPU=avx2|avx512|avx512bf16|neon|neonbf16|generic chooses this program's instruction set.`,
		Example: `  pnode bench kernels                  matrix products against OpenBLAS and PyTorch's libraries
  pnode bench step                     training steps against PyTorch
  pnode bench generate                 generated text against Hugging Face's transformers
  pnode bench schedules                pipeline schedules on emulated slow links
  pnode bench devices                  GPUs against cuBLASLt and PyTorch
  pnode bench planner                  plans against the optimum and splits by hand
  pnode bench average                  sums of gradients over slow lines against PyTorch over Gloo
  pnode bench protocol-nanogpt         codecs by the meter of a public contest
  pnode bench local-steps              losses of replicas with local steps against PyTorch
  pnode bench growth                   how the cost of a step grows with tokens, layers, nodes and replicas
  pnode bench kernels --json | jq .summary`,
		Args: usageArgs(knownCommand),
		RunE: func(c *cobra.Command, _ []string) error {
			if worker != "" {
				return bench.Worker(c.Context(), worker, e.stdin, e.stdout)
			}
			return c.Help()
		},
	}
	c.Flags().StringVar(&worker, "worker", "", "be this program's side of a measurement")
	c.Flags().Lookup("worker").Hidden = true
	c.AddCommand(e.benchKernelsCommand(), e.benchStepCommand(), e.benchGenerateCommand(), e.benchSchedulesCommand(), e.benchDevicesCommand(), e.benchPlannerCommand(), e.benchAverageCommand(), e.benchContestCommand(), e.benchLossesCommand(), e.benchLocalStepsCommand(), e.benchGrowthCommand())
	return c
}

func (e environment) benchKernelsCommand() *cobra.Command {
	var o bench.KernelOptions
	c := &cobra.Command{
		Use:   "kernels",
		Short: "Matrix products against OpenBLAS and PyTorch, and the machine's limits",
		Long: `Measure f32 and bf16 matrix products in the shapes of training, with operands plain (NN), B
transposed (NT, the forward pass of a linear layer) and A transposed (TN, the gradient of its
weight, which in f32 is added to what is there). Beside them stand the rates that no kernel can
pass: multiply-adds in registers alone, of floats and of bf16, and a copy of memory.

Peers are processes of their own, of the Python that --python names. OpenBLAS, for f32, is the
newest that it finds: the system's, or one in the wheels of numpy and scipy. torch.mm has
PyTorch's own libraries multiply: f32 by MKL or OpenBLAS, bf16 by oneDNN. A ratio is to the
peer that is the fastest at a product. What is not there is named, and the others are compared.
OPENBLAS_CORETYPE=Haswell makes OpenBLAS compute with AVX2 where it would take AVX-512.`,
		Example: `  pnode bench kernels --python ~/venv/bin/python
  pnode bench kernels --threads 1 --rounds 21
  PNODE_CPU=avx2 OPENBLAS_CORETYPE=Haswell pnode bench kernels --json > kernels.json`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Progress = m.progress
		return bench.Kernels(ctx, o)
	})
	f.IntVar(&o.Rounds, "rounds", 5, "measurements on each side")
	f.IntSliceVar(&o.Threads, "threads", nil, "numbers of threads to try (default 1 and all cores)")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of the Python that loads OpenBLAS and PyTorch")
	f.StringVar(&o.Library, "library", "", "`PATH` of OpenBLAS (default the newest that the Python finds)")
	return c
}

// measuring holds what a measurement works with.
type measuring struct {
	binary   string // this program
	progress func(string)
	show     func(string) // prints a part of the report as soon as it is known, in place of its text in the end; nil where that is JSON
}

// measures makes c run a measurement and print its report; it returns the command's flags.
func (e environment) measures(c *cobra.Command, measure func(context.Context, measuring) (report, error)) *pflag.FlagSet {
	var asJSON bool
	c.Args = noArgs
	c.RunE = func(c *cobra.Command, _ []string) error {
		binary, err := image.Executable()
		if err != nil {
			return err
		}
		line := progress.NewLine(e.stderr, isTerminal(e.stderr), time.Now)
		m := measuring{binary: binary, progress: line.At}
		shown := false
		var wrote error
		if !asJSON {
			m.show = func(text string) {
				line.Clear()
				_, failed := fmt.Fprint(e.stdout, text)
				shown, wrote = true, cmp.Or(wrote, failed)
			}
		}
		r, err := measure(c.Context(), m)
		line.Clear()
		if shown {
			return errors.Join(err, wrote)
		}
		// An interrupt is no error of the rows so far.
		if partial, ok := r.(interface{ HasRows() bool }); err != nil && !(ok && partial.HasRows()) {
			return err
		}
		if asJSON {
			return errors.Join(err, json.NewEncoder(e.stdout).Encode(r))
		}
		_, wrote = fmt.Fprint(e.stdout, r.Text())
		return errors.Join(err, wrote)
	}
	f := c.Flags()
	f.SortFlags = false
	f.BoolVar(&asJSON, "json", false, "print one JSON object")
	return f
}

// report prints the result of a measurement.
type report interface{ Text() string }

func (e environment) benchStepCommand() *cobra.Command {
	var o bench.StepOptions
	c := &cobra.Command{
		Use:   "step",
		Short: "Training steps against PyTorch",
		Long: `Measure training steps (forward, backward, clipping, AdamW) of a character model of 10.8 M
parameters and of GPT-2 with 124 M, in f32 and in bf16 (--storage bf16): tokens a second, the
most memory that was ever resident, where the time goes, and how much of what the processor
could multiply.

PyTorch runs the same model in plain code, eager and by torch.compile, in f32 and in bf16 (its
autocast), with its fused AdamW and fused attention where its version has them. All sides of a
precision are there at once, each with up to 4 GiB of memory for GPT-2, warm up with as many steps,
and take turns. What cannot run, as for want of a C++ compiler, is a row with the reason. After an
interrupt the rows so far are shown.`,
		Example: `  pnode bench step
  pnode bench step --model 10m --sequence 256 --threads 2 --precision bf16
  pnode bench step --python ~/venv/bin/python --json > step.json`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Binary, o.Progress = m.binary, m.progress
		return bench.Steps(ctx, o)
	})
	f.StringSliceVar(&o.Models, "model", nil, "`NAMES` among "+strings.Join(bench.StepModels(), ", ")+" (default all)")
	f.IntSliceVar(&o.Sequences, "sequence", nil, "`LENGTHS` of a sequence (default 256,1024)")
	f.IntSliceVar(&o.Threads, "threads", nil, "numbers of threads (default 1 and every core)")
	f.StringSliceVar(&o.Precisions, "precision", nil, "`NAMES` among "+strings.Join(bench.StepPrecisions(), ", ")+" (default all)")
	f.IntVar(&o.Rounds, "rounds", 5, "measurements on each side")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of a Python with PyTorch")
	return c
}

func (e environment) benchGenerateCommand() *cobra.Command {
	var o bench.GenerateOptions
	c := &cobra.Command{
		Use:   "generate",
		Short: "Generated text against Hugging Face's transformers",
		Long: `Measure how fast texts are continued by GPT-2 with 124 M parameters and a character model of 10.8 M, in
f32, in bf16 and in int8 (--storage): tokens a second after the first token, tokens of the prompts a
second, and the most memory that was ever resident. Weights are random, and all sides read the same.

A token takes at least as long as it takes to read the weights and the keys and values once. The
row "limit" is how fast this machine does that, measured after each round with as many threads.

Hugging Face's transformers run as processes of the Python that --python names, with PyTorch: eager,
and by torch.compile with a static cache. They take the likeliest token, as pnode does, and have no
int8: beside it they run in f32 and bf16. All sides of a precision are there at once, warm up with as
many texts, and take turns. What cannot run is a row with the reason. After an interrupt the rows so
far are shown.`,
		Example: `  pnode bench generate --python ~/venv/bin/python
  pnode bench generate --model gpt2-124m --threads 2 --batch 1,8 --precision bf16
  pnode bench generate --prompt 512 --tokens 256 --json > generate.json`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Binary, o.Progress = m.binary, m.progress
		return bench.Generate(ctx, o)
	})
	f.StringSliceVar(&o.Models, "model", nil, "`NAMES` among "+strings.Join(bench.StepModels(), ", ")+" (default all)")
	f.IntSliceVar(&o.Batches, "batch", nil, "`NUMBERS` of texts at a time (default 1)")
	f.IntVar(&o.Prompt, "prompt", 64, "tokens of a prompt")
	f.IntVar(&o.Tokens, "tokens", 64, "tokens of a text after its prompt")
	f.IntSliceVar(&o.Threads, "threads", nil, "numbers of threads (default 1 and every core)")
	f.StringSliceVar(&o.Precisions, "precision", nil, "`NAMES` among "+strings.Join(decoding.PrecisionNames(), ", ")+" (default all)")
	f.IntVar(&o.Rounds, "rounds", 5, "measurements on each side")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of a Python with PyTorch and transformers")
	return c
}

func (e environment) benchSchedulesCommand() *cobra.Command {
	var o bench.ScheduleOptions
	c := &cobra.Command{
		Use:   "schedules",
		Short: "Pipeline schedules on emulated devices and slow links",
		Long: `Measure schedules on emulated devices and links, with the workers of real runs and real QUIC, and
compare them with the simulator's predictions. The elastic schedule runs with memory for as many
activations as 1F1B keeps, for twice as many, and without a limit. 1F1B, GPipe, depth-first and
breadth-first interleaving run in the same measurement. "elastic groups" is interleaving in the
groups that the simulator prefers over the elastic schedule.

A stage takes --stage-time for a micro-batch; nothing is computed. The first steps, in which the
connections find their speed, do not count. Other work on the machine makes the figures worse:
"go test ./node/bench -run Grid -v -grid full" measures the same in virtual time.`,
		Example: `  pnode bench schedules                         4 stages, 100 Mbit/s, 10 and 40 ms
  pnode bench schedules --full                  4 and 8 stages, 20 kinds of links: hours
  pnode bench schedules --stages 8 --mbit 50 --latency 150ms --json`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Progress = m.progress
		return bench.Schedules(ctx, o)
	})
	f.BoolVar(&o.Full, "full", false, "the whole grid: 4 and 8 stages, 10 to 1000 Mbit/s, 1 to 150 ms")
	f.IntSliceVar(&o.Stages, "stages", nil, "`NUMBERS` of stages (default 4)")
	f.IntSliceVar(&o.Mbits, "mbit", nil, "`RATES` of each link and direction in Mbit/s (default 100)")
	f.DurationSliceVar(&o.Latencies, "latency", nil, "one-way `TIMES` of the links (default 10ms,40ms)")
	f.DurationVar(&o.StageTime, "stage-time", 0, "of one micro-batch on one stage (default 40ms)")
	return c
}

func (e environment) benchDevicesCommand() *cobra.Command {
	var o bench.DeviceOptions
	var strict bool
	flags := config.Default()
	c := &cobra.Command{
		Use:   "devices",
		Short: "GPUs against cuBLASLt and PyTorch, in every figure that has a target",
		Long: `Measure each GPU in these rows:

  products   bf16 products by this program's kernels against cuBLASLt, and cuBLASLt as this
             program calls it against PyTorch
  attention  causal attention with gradients against PyTorch's flash attention
  step       a training step of GPT-2 with 124 M parameters against eager PyTorch, with the
             largest micro-batch that fits both; compiled: against compiled PyTorch
  large      a step of a model of 1.3 B parameters against the peak of the device
  launch     the share of a step in which the device has nothing to do: the step's time less what
             its calls take, by the device's clock, when they are made again in one go
  copies     the share of the copies between host and device that runs beside passes of the same
             stage, in a pipeline of two stages on the device; and their rate
  repeat     losses of a second run, to the bit; losses: against those of the processor

PyTorch runs as a process of its own (--python); its cuBLASLt is used where the system has none.
A row that cannot be measured or compared stays open, with the reason. Leave the machine alone
meanwhile: PyTorch's compiler and the larger models take minutes. After an interrupt the rows
so far are shown.

MFU is the work of a step over the peak in the card's data sheet (for an unknown card: over its
fastest product). The work of a token is 6 operations for each multiplied parameter, and
6 L C (T+1) for causal attention. A step has one micro-batch and its update.`,
		Example: `  pnode bench devices --python ~/venv/bin/python
  pnode bench devices --devices cuda:0 --only products,attention --rounds 11
  pnode bench devices --strict --json > devices.json            fails where losses are wrong
  pnode bench devices --devices cpu --size small --rounds 1     tries the command out, in a minute`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Binary, o.Probe, o.Devices, o.Progress = m.binary, e.probe, flags.Devices.Names(), m.progress
		r, err := bench.Devices(ctx, o)
		if err == nil && strict {
			err = r.Strict()
		}
		return r, err
	})
	f.Var(&flags.Devices, "devices", "devices to measure, for example cuda:0,opencl:1; auto takes every GPU that works")
	f.StringSliceVar(&o.Only, "only", nil, "`ROWS` among "+strings.Join(bench.DeviceRows(), ", ")+" (default all)")
	f.StringVar(&o.Size, "size", bench.DeviceSizes()[0], "`SIZE` of what is measured: "+strings.Join(bench.DeviceSizes(), ", ")+fmt.Sprintf("; targets are for %s", bench.DeviceSizes()[0]))
	f.IntVar(&o.Rounds, "rounds", 5, "measurements on each side")
	f.DurationVar(&o.Limit, "limit", 15*time.Minute, "longest time for a row, or for PyTorch to start")
	f.BoolVar(&strict, "strict", false, "fail if losses miss their target, or if a figure is open that this machine could give")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of a Python with PyTorch")
	return c
}

func (e environment) benchPlannerCommand() *cobra.Command {
	var o bench.PlannerOptions
	c := &cobra.Command{
		Use:   "planner",
		Short: "Plans against those of fewer nodes, the optimum, splits by hand and kinds of schedules",
		Long: `Plan random clusters and compare the predicted steps in these rows:

  chains  nested clusters, each with the nodes of the one before: no step should be longer
          because nodes have joined, or longer than on the best single device
  small   clusters of 2 to 5 devices and up to 12 layers against the optimum of all sets and
          orders of devices, replicas and cuts, which branch and bound proves
  medium  the same of 6 to 8 devices
  mixed   GPT-3 with 1.3 B parameters on cards of four kinds against an equal split, a split by
          speed (the best of all numbers of replicas and stages that use every card), and
          the fastest cards of one kind
  kinds   pipelines of 2 to 6 stages on links of 1 to 150 ms with 1 to 4 times as many
          micro-batches, whose schedule the planner chooses, against each kind alone
  time    how long planning takes, and planning again after a node is lost
  predictions  predicted steps against those of real workers on emulated devices and links of
          1 to 150 ms, in real time: only where it is named

A seed makes the same clusters and predicted steps on every machine. Times of planning are the
machine's as it is. What is known of a row is printed at once; after an interrupt the text ends with
what is missing (PARTIAL, in JSON "partial").`,
		Example: `  pnode bench planner
  pnode bench planner --only chains --chains 50 --nodes 64                  half an hour
  pnode bench planner --only chains --chains 50 --nodes 64 --every 64       hours
  pnode bench planner --only small,medium --small 1000 --medium 50          minutes
  pnode bench planner --only mixed --mixed 8,16,32,64
  pnode bench planner --only time --times 8,16,32,64,128,256,512,1000 --json > times.json
  pnode bench planner --only predictions --predictions 40                   an hour`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Progress, o.Show = m.progress, m.show
		return bench.Planner(ctx, o)
	})
	f.StringSliceVar(&o.Only, "only", nil, "`ROWS` among "+strings.Join(bench.PlannerRows(), ", ")+" (default all but predictions)")
	f.Uint64Var(&o.Seed, "seed", 1, "of the first cluster in each row; the others count up from it")
	f.IntVar(&o.Chains, "chains", 3, "chains of nested clusters")
	f.IntVar(&o.Nodes, "nodes", 12, "nodes of the largest cluster of a chain")
	f.IntVar(&o.Every, "every", 16, "nodes up to which every cluster of a chain is planned; of larger ones each with a quarter more")
	f.IntVar(&o.Small, "small", 100, "clusters of 2 to 5 devices")
	f.IntVar(&o.Medium, "medium", 10, "clusters of 6 to 8 devices")
	f.IntSliceVar(&o.Mixed, "mixed", nil, "`SIZES` of mixed clusters (default 8,16)")
	f.IntVar(&o.Cells, "cells", 60, "pipelines whose kind of schedule the planner chooses")
	f.IntSliceVar(&o.Times, "times", nil, "`SIZES` of clusters whose planning is timed (default 8,16,32,64)")
	f.IntVar(&o.Layers, "layers", 96, "of the model whose planning is timed")
	f.IntVar(&o.Predictions, "predictions", 4, "clusters whose plans are run")
	return c
}

func (e environment) benchAverageCommand() *cobra.Command {
	var o bench.AverageOptions
	c := &cobra.Command{
		Use:   "average",
		Short: "Sums of gradients between replicas over slow lines, against PyTorch over Gloo",
		Long: `Measure how long replicas take to add gradients up: each peer is a process in a network of its own, at
the end of a line with a rate, a latency and losses. Both programs use the same lines, in turn.

PyTorch's all_reduce runs over Gloo, in the buckets of DistributedDataParallel (--python); without it
the table has this program's figures alone. The limit beside them is what the payload takes between
the headers of IP and TCP.

It needs Linux, root, ip and tc (iproute2), nft (nftables) and /dev/net/tun. Losses are where congestion control
matters: the kernel's is TCP's, as "sysctl net.ipv4.tcp_congestion_control" says.`,
		Example: `  sudo pnode bench average --python ~/venv/bin/python
  sudo pnode bench average --peers 2 --latency 20ms --loss 0.5 --rounds 11
  sudo pnode bench average --size 500 --mbit 1000 --json > average.json`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Binary, o.Progress = m.binary, m.progress
		return bench.Averages(ctx, o)
	})
	f.IntVar(&o.Megabytes, "size", 43, "of the gradients, in MB")
	f.IntSliceVar(&o.Peers, "peers", nil, "`NUMBERS` of peers (default 2,4)")
	f.IntSliceVar(&o.Mbits, "mbit", nil, "`RATES` of each peer's line, each way, in Mbit/s (default 100)")
	f.DurationSliceVar(&o.Latencies, "latency", nil, "one-way `TIMES` between two peers (default 0s)")
	f.Float64SliceVar(&o.Losses, "loss", nil, "`PERCENTAGES` of packets that are lost between two peers (default 0)")
	f.IntVar(&o.Rounds, "rounds", 5, "measurements on each side")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of a Python with PyTorch")
	return c
}

func (e environment) benchContestCommand() *cobra.Command {
	var o bench.ContestOptions
	c := &cobra.Command{
		Use:   "protocol-nanogpt",
		Short: "Steps by the meter of the contest Protocol NanoGPT",
		Long: `Simulate the frozen meter of a public contest (https://github.com/PluralisResearch/ProtocolNanoGPT): a
model of 203.8 M parameters as a pipeline of 8 stages, 512 sequences of 1,024 tokens a step. All that a
stage receives passes one wire of 200 Mbit/s, one message after the other, and each takes 50 ms besides.

The steps of both published entries are computed beside the published ones. The steps of this program's codecs
and schedules follow, for the best micro-batch of each.

How a codec changes the loss is not in these figures. --losses FOLDER measures it on a sibling: a model of
5 M parameters in 8 stages, trained by 8 local nodes with each codec and each seed, one run after the
other. After an interrupt the same command goes on where it stopped. It takes hours.`,
		Example: `  pnode bench protocol-nanogpt
  pnode bench protocol-nanogpt --micro-batch 8,16 --json | jq .codecs
  pnode bench protocol-nanogpt --losses losses/                    hours; goes on where it stopped`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Progress, o.Binary = m.progress, m.binary
		return bench.Contest(ctx, o)
	})
	f.IntSliceVar(&o.MicroBatches, "micro-batch", nil, "`NUMBERS` of sequences in a micro-batch to try (default 1,2,4,8,16,32,64)")
	f.StringVar(&o.Losses, "losses", "", "train the sibling in `FOLDER`, which keeps what was measured")
	f.StringSliceVar(&o.Codecs, "codec", nil, "`NAMES` of the codecs to train it with (default all)")
	f.IntVar(&o.Seeds, "seeds", 0, "how many seeds to train it with, from 1 on (default 3)")
	f.IntVar(&o.Stages, "stages", 0, "its stages, a local node each (default 8)")
	f.IntVar(&o.Steps, "steps", 0, "steps of each run, of 2,048 tokens (default 1000)")
	f.StringArrayVar(&o.Data, "data", nil, "`PATH` of the text, as of pnode train; repeat it for more")
	return c
}

func (e environment) benchLocalStepsCommand() *cobra.Command {
	var o bench.LocalStepsOptions
	c := &cobra.Command{
		Use:   "local-steps",
		Short: "Losses of replicas with local steps against PyTorch",
		Long: `Train nano with --sync local by real nodes, one for each replica, and have PyTorch train the same from the same parameters and
the same samples: plain code with its own AdamW for inner steps, its SGD with Nesterov momentum for outer ones, and the codecs and
their error feedback written again from the papers and the documentation. What each replica did is read from the nodes' ledgers. The table has the
largest and the mean relative difference between losses of all inner steps, beside PyTorch in float32 and in float64, and between
these two: what precision alone changes.`,
		Example: `  pnode bench local-steps --python ~/venv/bin/python
  pnode bench local-steps --codec f32,int8 --every 10 --delay 2 --json`,
	}
	f := e.measures(c, func(ctx context.Context, m measuring) (report, error) {
		o.Binary, o.Progress = m.binary, m.progress
		return bench.LocalSteps(ctx, o)
	})
	f.StringSliceVar(&o.Codecs, "codec", nil, "`NAMES` of the codecs of outer steps among "+strings.Join(plan.OuterCodecs(), ", ")+" (default all)")
	f.IntVar(&o.Replicas, "replicas", 2, "replicas, a local node each")
	f.IntVar(&o.Steps, "steps", 200, "inner steps of each replica")
	f.IntVar(&o.Every, "every", 20, "inner steps between two outer ones")
	f.IntVar(&o.Delay, "delay", 0, "inner steps of the next round that are made while messages of outer steps travel")
	f.Float64Var(&o.LR, "lr", 1e-3, "learning rate of inner steps")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the parameters and of the order of the samples")
	f.StringArrayVar(&o.Data, "data", nil, "`PATH` of the text, as of pnode train; repeat it for more")
	f.StringVar(&o.Python, "python", "python3", "`PATH` of a Python with PyTorch")
	return c
}
