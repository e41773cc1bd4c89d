package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"pnode/kernels/devices"
	"pnode/node/config"
)

// addTrainFlags adds a flag for every setting, with the defaults that c holds.
func addTrainFlags(f *pflag.FlagSet, c *config.Config) {
	f.SortFlags = false
	f.StringVar(&c.Preset, "preset", c.Preset, "`NAME` of the model")
	f.StringVar(&c.Init, "init", c.Init, "`FOLDER` of the weights to start from, in place of a preset: in Hugging Face's layout, imported, or a stopped run's")
	f.IntVar(&c.Context, "context", c.Context, "tokens of a sequence; 0 is the model's own")
	f.StringArrayVar(&c.Data, "data", c.Data, "`PATH` of UTF-8 text (a file, folder or glob) or of a folder of token shards; can be repeated (default the Go source tree)")
	f.Var(&c.DataLimit, "data-limit", "use at most so much of the data; 0 is all of --data, and 16MB of the Go source tree")
	f.IntVar(&c.Steps, "steps", c.Steps, "optimizer updates")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "of the initial parameters and the order of the data")
	f.StringVar(&c.Dir, "dir", c.Dir, "`FOLDER` of the run (default a new one, or with --resume the newest)")
	f.IntVar(&c.Local, "local", c.Local, "run `N` nodes on this machine")
	f.StringVar(&c.Cluster, "cluster", c.Cluster, "`FILE` (YAML) with the devices and links of an emulated cluster: one local node a device")
	addEmulate(f, c)
	f.Var(&c.Replicas, "replicas", "copies of the model")
	f.Var(&c.Stages, "stages", "pipeline stages of each copy")
	f.StringVar(&c.Schedule, "schedule", c.Schedule, "`KIND` of order in which micro-batches are computed, for example zb-h1 or interleaved:v=2; with chunks each of the --stages holds several, and both ways each of the --replicas is two")
	f.BoolVar(&c.UnevenShares, "uneven-shares", c.UnevenShares, "give faster replicas more micro-batches; losses then depend on the plan, in the last bits")
	f.StringVar(&c.Recompute, "recompute", c.Recompute, "`WHAT` to compute again in the backward pass to save memory: none, outputs (of norms and activations), block, or auto for what each stage needs; the losses are the same")
	f.StringVar(&c.Shard, "shard", c.Shard, "`WHETHER` replicas hold the optimizer state in parts, each one: on for less memory, off for cheaper checkpoints, or auto for parts of those stages whose memory needs it; the losses are the same")
	f.StringVar(&c.Storage, "storage", c.Storage, "`TYPE` in which weights and activations of matrix products are stored: f32, bf16 for less memory with several micro-batches in flight, f16 for cards whose matrix units know no bf16 (with loss scaling), or auto for bf16 or f16 on devices that multiply it faster and f32 on the others; checkpoints are f32 anyway")
	f.BoolVar(&c.StochasticRounding, "stochastic-rounding", c.StochasticRounding, "round weights to bf16 by chance in place of to nearest, the same on every device and after --resume")
	f.StringVar(&c.Codec, "codec", c.Codec, "`CODEC` in which activations and gradients travel between stages: f32 changes nothing; bf16 and int8 send a half and a quarter of the bytes; auto (auto:bf16) takes them only where messages on slow links would be waited for. Losses then depend a little on where the model is cut")
	f.BoolVar(&c.Resume, "resume", c.Resume, "go on with a run, with the settings it was started with")
	f.StringVar(&c.Listen, "listen", c.Listen, "`HOST:PORT` for other nodes (default loopback, any port)")
	addTrace(f, c)
	f.BoolVar(&c.JSON, "json", c.JSON, "one JSON object a step on standard output")
	f.IntVar(&c.MinNodes, "min-nodes", c.MinNodes, "wait for so many nodes before the first plan")
	f.IntVar(&c.Micros, "micros", c.Micros, "micro-batches a step")
	f.IntVar(&c.MicroBatch, "micro-batch", c.MicroBatch, "sequences a micro-batch")
	f.Float64Var(&c.LR, "lr", c.LR, "learning rate; large presets and --init have lower defaults")
	f.Float64Var(&c.MinLR, "min-lr", c.MinLR, "learning rate at the last step")
	f.IntVar(&c.WarmupSteps, "warmup-steps", c.WarmupSteps, "steps up to the learning rate")
	f.Float64Var(&c.WeightDecay, "weight-decay", c.WeightDecay, "decoupled weight decay of matrices")
	f.Float64Var(&c.ClipNorm, "clip-norm", c.ClipNorm, "bound of the global gradient norm; 0 is off")
	f.Float64Var(&c.Dropout, "dropout", c.Dropout, "share of elements set to zero in training, of the embedding and of what each layer adds to it")
	f.StringVar(&c.LoRA, "lora", c.LoRA, "`FOLDER` of adapters of --init in PEFT's layout to train on; the weights are frozen")
	f.IntVar(&c.LoRARank, "lora-rank", c.LoRARank, "freeze the weights of --init and train adapters of `RANK`; 0 trains the weights")
	f.Float64Var(&c.LoRAAlpha, "lora-alpha", c.LoRAAlpha, "over the rank it is an adapter's scale; 0 is twice the rank")
	f.StringVar(&c.LoRATargets, "lora-targets", c.LoRATargets, "`NAMES` of linear layers that get adapters, with commas (default q_proj,v_proj, or c_attn of GPT-2)")
	f.BoolVar(&c.DocumentMask, "document-mask", c.DocumentMask, "keep attention within documents, which end-of-text tokens tell apart in token shards")
	f.IntVar(&c.HeldOutEvery, "held-out-every", c.HeldOutEvery, "steps between held-out losses")
	f.IntVar(&c.CheckpointEvery, "checkpoint-every", c.CheckpointEvery, "steps between checkpoints")
	f.IntVar(&c.Keep, "keep", c.Keep, "newest checkpoints to keep")
	f.IntVar(&c.SampleBytes, "sample-bytes", c.SampleBytes, "length of the text generated at the end; 0 is none")
	f.IntVar(&c.Threads, "threads", c.Threads, "cores to compute on; 0 is all")
	addDevices(f, c)
	addMemory(f, c)
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "`LEVEL`: debug, info, warn or error")
}

// addEmulate adds the flag that makes a node look like another one.
func addEmulate(f *pflag.FlagSet, c *config.Config) {
	f.StringVar(&c.Emulate, "emulate", c.Emulate, "`FILE` (YAML) with the device and the links that this node is to look like having")
}

// addDevices adds the flag for what to compute on.
func addDevices(f *pflag.FlagSet, c *config.Config) {
	f.Var(&c.Devices, "devices", "what to compute on, for example opencl:0,cpu: auto takes every GPU that works, and the processor unless a GPU is 4 times as fast; local nodes get a device each, or share the processor. "+devices.NamesEnv+" says what auto takes")
}

// addMemory adds the flag for how much memory may be taken.
func addMemory(f *pflag.FlagSet, c *config.Config) {
	f.Var(&c.Memory, "memory", "how much of the devices' memory may be taken, for example 8GiB, 50% or cuda:0=8GiB,cpu=25%: auto takes what other programs leave free. Local nodes on one device share it")
}

// addTrace adds the flag for a timeline.
func addTrace(f *pflag.FlagSet, c *config.Config) {
	f.StringVar(&c.Trace, "trace", c.Trace, "`FILE` for the timeline of every step, in Chrome's trace format")
}

// addSupervised adds the flag by which `train --local` starts its nodes.
func addSupervised(f *pflag.FlagSet, supervised *bool) {
	f.BoolVar(supervised, "supervised", false, "end when standard input ends")
	f.Lookup("supervised").Hidden = true
}

// givenKeys tells by the key of a setting whether its flag is on the command line.
func givenKeys(f *pflag.FlagSet) func(key string) bool {
	return func(key string) bool { return f.Changed(strings.ReplaceAll(key, "_", "-")) }
}

// plainValues says by the type of a flag what it takes, where its own error is strconv's.
var plainValues = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number from 0",
	"intSlice": "whole numbers with commas between them", "float64": "a number", "bool": "true or false",
	"duration": "a time such as 90s or 24h",
}

// explainValue says of a flag's value that cannot be read what is accepted. Other errors stay.
func explainValue(err error) error {
	invalid := (*pflag.InvalidValueError)(nil)
	if !errors.As(err, &invalid) {
		return err
	}
	flag := invalid.GetFlag()
	plain, known := plainValues[flag.Value.Type()]
	switch {
	case !known: // the setting's own words begin with the value
		return fmt.Errorf("--%s %w", flag.Name, errors.Unwrap(err))
	case errors.Is(err, strconv.ErrRange):
		plain += " that is not so large"
	}
	return fmt.Errorf("--%s %q: want %s", flag.Name, invalid.GetValue(), plain)
}
