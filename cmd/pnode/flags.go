package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"pnode/kernels/devices"
	"pnode/node/config"
	"pnode/node/dataset/source"
	"pnode/node/export"
	"pnode/pipeline/model"
)

// addTrainFlags adds a flag for every setting; the values in c are the defaults.
func addTrainFlags(f *pflag.FlagSet, c *config.Config) {
	f.SortFlags = false
	f.StringVar(&c.Preset, "preset", c.Preset, "`NAME` of the model: "+strings.Join(model.PresetNames(), ", "))
	f.StringVar(&c.Init, "init", c.Init, "start from the weights in `FOLDER` instead of a preset: a Hugging Face model, an imported one, or a run; hf:ORG/NAME downloads one, see pnode pull")
	f.IntVar(&c.Context, "context", c.Context, "tokens of a sequence; 0 takes the model's own")
	f.StringArrayVar(&c.Data, "data", c.Data, "`PATH` of UTF-8 text, JSON Lines, CSV or Parquet, packed with gzip or zstd or not (file, folder or pattern), or of token shards; repeat it for more (default the Go source tree if there is one, else sums and sentences that pnode writes)")
	f.StringVar(&c.Column, "column", c.Column, "`NAME` of the column or field with the text in --data (default "+source.DefaultColumn+")")
	f.BoolVar(&c.SkipMalformed, "skip-malformed", c.SkipMalformed, "leave malformed documents of --data out, however many; without it 1 in 100 of a file is left out at most")
	f.Var(&c.DataLimit, "data-limit", "use at most this much of the data; 0 takes all of --data, or 16MB of the Go source tree")
	f.IntVar(&c.Steps, "steps", c.Steps, "optimizer updates; with --resume a later end for the run")
	f.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the first parameters and of the order of the data")
	f.StringVar(&c.Dir, "dir", c.Dir, "`FOLDER` of the run (default a new one; with --resume the newest)")
	f.IntVar(&c.Local, "local", c.Local, "run `N` nodes on this machine")
	f.StringVar(&c.Cluster, "cluster", c.Cluster, "emulate the devices and links in `FILE` (YAML), one local node for each device")
	f.Var(&c.Replicas, "replicas", "copies of the model")
	f.Var(&c.Stages, "stages", "pipeline stages of each copy")
	f.StringVar(&c.Schedule, "schedule", c.Schedule, "order of computing: `KIND` such as 1f1b, zb-h1 or interleaved:v=2, see pnode schedule --list; auto lets the planner choose")
	f.Var(&c.SumGroups, "sum-groups", "add gradients in this many groups of micro-batches, in an order that is the same for any number of replicas up to that; 1 needs the least memory")
	f.StringVar(&c.Sync, "sync", c.Sync, "when replicas come together: `RULE` every-step adds their gradients in each step, so that losses are those of one machine; local has each replica train on its own and brings them together every so many steps, for slow lines: losses change a little. Settings may follow: local:h=50,codec=int8,delay=3,warmup=10%,lr=0.7,momentum=0.5 has the steps until they meet, the codec of what they send (f32, bf16, int8, int4, topk), how many steps go on while that travels, the first steps with every-step, and the outer optimizer; the planner chooses what is left out. See docs/planning.md")
	f.BoolVar(&c.UnevenShares, "uneven-shares", c.UnevenShares, "give faster replicas more groups of micro-batches; losses stay the same")
	f.StringVar(&c.Recompute, "recompute", c.Recompute, "`WHAT` to compute again to save memory: none, outputs (of norms and activations), block, or auto for what each stage needs; losses stay the same")
	f.StringVar(&c.PostValidation, "post-validation", c.PostValidation, "apply a step before its commit, and roll it back where that asks for something else: auto `WHERE` steps are shorter for it, or off; losses stay the same")
	f.StringVar(&c.Shard, "shard", c.Shard, "share the optimizer state among replicas: on, off, or auto `WHERE` memory needs it; losses stay the same")
	f.StringVar(&c.Storage, "storage", c.Storage, "`TYPE` of weights and activations in matrix products: f32, bf16, f16 (with loss scaling), or auto: bf16 or f16 where the devices that the run begins with multiply it at least 1.5 times as fast together, processors where each of them has instructions for it; pnode plan says why, and checkpoints are always f32")
	f.BoolVar(&c.StochasticRounding, "stochastic-rounding", c.StochasticRounding, "round weights to bf16 by chance instead of to nearest, the same on every device and after --resume")
	f.StringVar(&c.Codec, "codec", c.Codec, "`CODEC` between stages: f32 is exact; bf16 sends half the bytes, int8 a quarter, int4 an eighth; auto (or auto:bf16, auto:int4) takes one of them, up to int8 (or bf16, int4), for the run where its first links are too slow for f32. Other codecs than f32 change losses a little, int4 the most")
	f.BoolVar(&c.Resume, "resume", c.Resume, "continue a run with the settings it was started with")
	f.IntVar(&c.MinNodes, "min-nodes", c.MinNodes, "wait for this many nodes before the first plan")
	f.StringVar(&c.Voters, "voters", c.Voters, "`WHICH` nodes vote on the run's log: auto takes owners' nodes first, then those that have been in the run for a while (any, where all nodes are on this machine); owners keeps votes with owners' nodes, without which the run then waits; any takes the oldest nodes at once")
	f.Var(&c.AwaitOwner, "await-owner", "how long the machines of a finished run stay for an owner that has not got the model yet; 0s ends them at once")
	f.IntVar(&c.Micros, "micros", c.Micros, "micro-batches in a step")
	f.IntVar(&c.MicroBatch, "micro-batch", c.MicroBatch, "sequences in a micro-batch")
	f.Float64Var(&c.LR, "lr", c.LR, "learning rate; large presets and --init have lower defaults")
	f.Float64Var(&c.MinLR, "min-lr", c.MinLR, "learning rate after its decay")
	f.IntVar(&c.WarmupSteps, "warmup-steps", c.WarmupSteps, "steps until the learning rate is reached")
	f.IntVar(&c.DecaySteps, "decay-steps", c.DecaySteps, "step at which the learning rate has come down to --min-lr; 0 takes the last one. Later steps train at --min-lr")
	f.Float64Var(&c.WeightDecay, "weight-decay", c.WeightDecay, "weight decay of matrices (AdamW)")
	f.StringVar(&c.Optimizer, "optimizer", c.Optimizer, "how parameters are updated: adamw, or muon for the matrices of blocks with adamw for all else; the same --lr suits both")
	f.Float64Var(&c.Momentum, "momentum", c.Momentum, "of --optimizer muon")
	f.Float64Var(&c.ClipNorm, "clip-norm", c.ClipNorm, "largest norm of the gradient; 0 is off")
	f.Float64Var(&c.Dropout, "dropout", c.Dropout, "share of elements set to zero in training, after the embedding and each layer")
	f.StringVar(&c.LoRA, "lora", c.LoRA, "train on the adapters of --init in `FOLDER` (PEFT layout; or hf:ORG/NAME); the weights stay frozen")
	f.IntVar(&c.LoRARank, "lora-rank", c.LoRARank, "freeze the weights of --init and train adapters of this `RANK`; 0 trains the weights")
	f.Float64Var(&c.LoRAAlpha, "lora-alpha", c.LoRAAlpha, "adapters are scaled by alpha / rank; 0 takes twice the rank")
	f.StringVar(&c.LoRATargets, "lora-targets", c.LoRATargets, "`NAMES` of the linear layers with adapters, separated by commas (default q_proj,v_proj; c_attn for GPT-2)")
	f.BoolVar(&c.DocumentMask, "document-mask", c.DocumentMask, "keep attention within documents; needs token shards with end-of-text tokens")
	f.IntVar(&c.HeldOutEvery, "held-out-every", c.HeldOutEvery, "steps between held-out losses")
	f.Var(&c.CheckpointEvery, "checkpoint-every", "steps between checkpoints; auto makes one every few seconds, or fewer where steps lose more than 1% of the time by them: up to every 30 s, or 20 times what one costs")
	f.IntVar(&c.Keep, "keep", c.Keep, "how many checkpoints to keep")
	f.IntVar(&c.SampleBytes, "sample-bytes", c.SampleBytes, "bytes of text to generate at the end; 0 is none")
	f.BoolVar(&c.LAN, "lan", c.LAN, "let machines of the local network find this node, and ask to be let in (pnode join there, pnode admit here); also accepts other nodes on any port if --listen says nothing else")
	addMachineFlags(f, c)
}

// addMachineFlags adds a flag for every setting of one machine; the values in c are the defaults.
func addMachineFlags(f *pflag.FlagSet, c *config.Config) {
	f.StringVar(&c.Name, "name", c.Name, "what status and messages call this machine: `NAME` of letters, digits, '-', '.' and '_' (default its host name)")
	f.StringVar(&c.Listen, "listen", c.Listen, "accept other nodes at `HOST:PORT`, for example :4001 for every interface (default this machine only)")
	f.StringVar(&c.Announce, "announce", c.Announce, "tell other nodes that they reach this one at `ADDRESSES`, separated by commas: HOST:PORT, tcp/HOST:PORT, udp/HOST:PORT or https://HOST; see docs/networks.md (default "+config.AnnounceEnv+", or what a provider of containers has set)")
	f.Var(&c.Relay, "relay", "relay data between nodes that cannot reach each other, at no more than this rate in all, if others reach this node; it cannot read what it relays. off relays no data. Control messages, at most 16Mbit/s, are always relayed (default 100Mbit/s, or what the folder had before)")
	f.StringVar(&c.KeepWhole, "keep-whole", c.KeepWhole, "keep the newest checkpoint with all layers in this node's folder, brought in the background: on, off, or auto `WHERE` the node is an owner's (default auto, or what the folder had before; local nodes, whose folders are together, keep none)")
	f.Lookup("keep-whole").NoOptDefVal = config.KeepOn
	f.StringVar(&c.Notices, "notices", c.Notices, "leave the run in good time when this spot instance is taken back: `CLOUD` aws, gcp or azure, which may be followed by =URL of its metadata service; auto asks the cloud that the firmware names, and nobody elsewhere; off asks nobody (default "+config.NoticesEnv+", or auto)")
	f.Var(&c.Grace, "grace", "how long this process has after SIGTERM until it is killed: hand over within that time")
	f.Var(&c.OnLostMajority, "on-lost-majority", "`WHAT` to do while a majority of the run's voters is away: wait for them, or recover-after=10m to go on without them after that time (at least 10m), as pnode recover does. Where they live after all, behind a network that is cut, both parts go on, and one of them loses its steps since then when they meet")
	f.Var(&c.AwaitHolders, "await-holders", "how long a run whose nodes are all started again waits, where this one leads it, for nodes that alone have layers of the newest checkpoint, before it goes back to an older one; 0s goes back at once. Where others go on, one that alone had layers is waited for as long as it takes to do the steps again, 5 s to 1 min, whatever this says")
	addThreads(f, &c.Threads)
	addDevices(f, c)
	f.Var(&c.Memory, "memory", "memory that the run may take, for example 8GiB, 50% or cuda:0=8GiB,cpu=25%; auto takes what other programs leave free. Local nodes on one device share it")
	f.StringVar(&c.Emulate, "emulate", c.Emulate, "emulate the device and the links in `FILE` (YAML) on this node")
	f.IntVar(&c.SampleEvery, "sample-every", c.SampleEvery, "have the model write a short text every `N` steps while it trains, from the first checkpoint that is whole on this machine then, which keeps the model whole for it; on one core of the processor, and losses stay the same. 0 is never")
	f.StringVar(&c.SamplePrompt, "sample-prompt", c.SamplePrompt, "`TEXT` that each of these begins with; without it a new document")
	f.StringVar(&c.Trace, "trace", c.Trace, "write the timeline of every step to `FILE` (Chrome trace format)")
	f.StringVar(&c.TensorBoard, "tensorboard", c.TensorBoard, "write losses, learning rate, gradient norm, speed and memory as event files of TensorBoard to `FOLDER`, which has those of no other run; see docs/metrics.md")
	f.StringVar(&c.CSV, "csv", c.CSV, "write a line a step to `FILE`, with the same numbers; the run goes on in it when it is started again, and another run is refused it")
	f.StringVar(&c.MLflow, "mlflow", c.MLflow, "log the same numbers to the MLflow server at `URL`, in the experiment "+export.ExperimentEnv+" or pnode")
	f.StringVar(&c.OTLP, "otlp", c.OTLP, "send traces of steps to the OpenTelemetry collector at `URL` (OTLP over HTTP), as http://127.0.0.1:4318; those of all nodes that do so come together")
	f.IntVar(&c.OTLPEvery, "otlp-every", c.OTLPEvery, "steps from one that is traced to the next")
	f.StringVar(&c.Metrics, "metrics", c.Metrics, "let Prometheus read metrics at http://`ADDRESS`/metrics without a key: PORT for programs of this machine, or HOST:PORT; of local nodes the first one answers; see docs/metrics.md")
	f.BoolVar(&c.JSON, "json", c.JSON, "print one JSON object for each step on standard output")
	f.StringVar(&c.LogLevel, "log-level", c.LogLevel, "`LEVEL`: debug, info, warn or error")
}

// addDevices adds --devices.
func addDevices(f *pflag.FlagSet, c *config.Config) {
	f.Var(&c.Devices, "devices", "devices to compute on, for example opencl:0,cpu; auto takes every GPU that works, and the processor unless a GPU is 4 times as fast. Local nodes get one device each, or share the processor. "+devices.NamesEnv+" changes what auto takes")
}

// givenKeys returns a function that reports whether the flag of a setting is on the command line.
func givenKeys(f *pflag.FlagSet) func(key string) bool {
	return func(key string) bool { return f.Changed(strings.ReplaceAll(key, "_", "-")) }
}

// plainValues describes the values of flags by their type, for types whose own errors are strconv's.
var plainValues = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number from 0",
	"intSlice": "whole numbers with commas between them", "float64": "a number", "bool": "true or false",
	"duration": "a time such as 90s or 24h",
}

// otherWords are names that flags have elsewhere, with the one here.
var otherWords = map[string]string{"field": "column", "text-column": "column", "epochs": "steps", "batch-size": "micro-batch", "learning-rate": "lr", "model": "preset", "output": "out"}

// explainFlag turns an error of the flags of a command line into what helps: the flag that was meant, or the values that it takes.
func explainFlag(flags *pflag.FlagSet, err error) error {
	unknown := (*pflag.NotExistError)(nil)
	if !errors.As(err, &unknown) {
		return explainValue(err)
	}
	var names []string
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	likely := config.Nearest(unknown.GetSpecifiedName(), names)
	if other := otherWords[unknown.GetSpecifiedName()]; slices.Contains(names, other) {
		likely = other
	}
	if likely != "" {
		return fmt.Errorf("%w: did you mean --%s?", err, likely)
	}
	return err
}

// explainValue turns the error of a flag's value into what is accepted. It returns other errors as they are.
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

// addThreads adds --threads, whose range checkFlags knows.
func addThreads(f *pflag.FlagSet, n *int) {
	f.IntVar(n, "threads", *n, "cores to compute on; 0 takes all")
}
