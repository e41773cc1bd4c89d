package config

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// Errors of this package.
var (
	// ErrInvalid is wrapped by errors about a setting's key or value.
	ErrInvalid = errors.New("config")
	// ErrNoRun: there is no run to go on with.
	ErrNoRun = errors.New("no run found")
	// ErrDirTaken: the folder holds a run that this start is not about.
	ErrDirTaken = errors.New("the folder holds a run already")
)

// Config holds every setting of `pnode train`. Keys of a run.yaml are the yaml tags; flags have the same names with
// dashes.
type Config struct {
	// Preset names the model; empty with Init.
	Preset string `yaml:"preset"`
	// Init is a folder with the weights to start from, and so the model: in Hugging Face's
	// layout, imported, or of a run; or a hub.Ref, which commands turn into a folder.
	Init string `yaml:"init"`
	// Context is the length of a sequence in tokens; 0 is the model's own.
	Context int `yaml:"context"`
	// Data are files, folders and globs of documents (see package source) or token shards; empty is the Go toolchain's source tree where
	// there is one, else a text that the node writes.
	Data []string `yaml:"data"`
	// DataLimit is how much of the text is used; 0 is all of what Data names, 16 MB of
	// the Go toolchain's source, and 4 MB of a text that the node writes.
	DataLimit Bytes `yaml:"data_limit"`
	// Column has the text in files that have columns; empty is source.DefaultColumn.
	Column string `yaml:"column"`
	// SkipMalformed leaves out any number of malformed documents, not 1 in 100 at most.
	SkipMalformed bool `yaml:"skip_malformed"`

	Steps int    `yaml:"steps"`
	Seed  uint64 `yaml:"seed"`
	// Micros micro-batches of MicroBatch sequences make one step.
	Micros     int `yaml:"micros"`
	MicroBatch int `yaml:"micro_batch"`
	// Learning rate: linear warm-up to LR over WarmupSteps, cosine to MinLR at DecaySteps, MinLR from there on.
	LR          float64 `yaml:"lr"`
	MinLR       float64 `yaml:"min_lr"`
	WarmupSteps int     `yaml:"warmup_steps"`
	// DecaySteps 0 is Steps. It stays where it was when a later start moves the end.
	DecaySteps  int     `yaml:"decay_steps"`
	WeightDecay float64 `yaml:"weight_decay"`
	// ClipNorm bounds the global gradient norm; 0 is off.
	ClipNorm float64 `yaml:"clip_norm"`

	// Dropout is the share of elements set to zero in training, of the embedding's output and
	// of what attention and MLP add to it.
	Dropout float64 `yaml:"dropout"`

	// LoRA is a folder with adapters of Init in PEFT's layout, which train on in place of the
	// weights.
	LoRA string `yaml:"lora"`
	// LoRARank of adapters that train in place of the weights of Init; 0 trains the weights.
	LoRARank int `yaml:"lora_rank"`
	// LoRAAlpha over LoRARank is the scale of an adapter; 0 is twice the rank.
	LoRAAlpha float64 `yaml:"lora_alpha"`
	// LoRATargets are the linear layers that have adapters, by the last parts of their names,
	// with commas; empty is those into the heads that PEFT takes.
	LoRATargets string `yaml:"lora_targets"`

	// HeldOutEvery and CheckpointEvery count steps; auto checkpoints are made as often as their cost allows.
	HeldOutEvery    int   `yaml:"held_out_every"`
	CheckpointEvery Count `yaml:"checkpoint_every"`
	// Keep is how many of the newest checkpoints stay.
	Keep int `yaml:"keep"`
	// SampleBytes is the length of the text generated at the end; 0 is none.
	SampleBytes int `yaml:"sample_bytes"`

	// Replicas and Stages fix the cut of the plan.
	Replicas Count `yaml:"replicas"`
	Stages   Count `yaml:"stages"`
	// Schedule is "auto", or the text of a schedule.Spec.
	Schedule string `yaml:"schedule"`
	// SumGroups is into how many groups a step's micro-batches are cut, of which replicas take whole ones: gradients
	// are added group by group, in an order that does not depend on the replicas.
	SumGroups Count `yaml:"sum_groups"`
	// Sync is the text of a plan.SyncRule: when replicas come together.
	Sync string `yaml:"sync"`
	// UnevenShares gives faster replicas more groups of micro-batches.
	UnevenShares bool `yaml:"uneven_shares"`
	// DocumentMask keeps attention within documents; for token shards.
	DocumentMask bool `yaml:"document_mask"`
	// Recompute is auto, none, outputs or block: what is computed again to save memory.
	Recompute string `yaml:"recompute"`
	// PostValidation is auto or off: whether workers may apply a step before its commit.
	PostValidation string `yaml:"post_validation"`
	// Optimizer is adamw or muon, Momentum Muon's.
	Optimizer string  `yaml:"optimizer"`
	Momentum  float64 `yaml:"momentum"`
	// Shard is auto, on or off: whether replicas hold their optimizer state in parts.
	Shard string `yaml:"shard"`
	// Storage is auto, f32, bf16 or f16: the type of what matrix products read.
	Storage string `yaml:"storage"`
	// StochasticRounding rounds weights to bf16 by chance.
	StochasticRounding bool `yaml:"stochastic_rounding"`
	// Codec is the text of a plan.CodecRule: how activations and gradients travel between
	// stages.
	Codec string `yaml:"codec"`
	// MinNodes active nodes are waited for before the first plan; the devices that Replicas
	// and Stages need are waited for in any case.
	MinNodes int `yaml:"min_nodes"`
	// Voters is auto, owners or any: which nodes vote on the run's log. For nodes on this machine alone auto is any.
	Voters string `yaml:"voters"`
	// AwaitOwner is how long members of a finished run stay for an owner that has not got the model yet.
	AwaitOwner Moment `yaml:"await_owner"`
	// Local is how many node processes to run on this machine; 0 is this process alone.
	Local int `yaml:"local"`

	// Cluster is a file that describes an emulated cluster, a local node for each device.
	Cluster string `yaml:"cluster"`
	// Emulate is a file that says which device and which links this node is to look like
	// having.
	Emulate string `yaml:"emulate"`

	// Dir is the run's folder; empty is a new one under DefaultDir.
	Dir string `yaml:"dir"`
	// Resume goes on with the run in Dir, or with the newest one.
	Resume bool `yaml:"resume"`
	// Name is what people call this machine; empty is its host name.
	Name string `yaml:"name"`
	// Listen is the "host:port" for other nodes; empty is loopback, any port.
	Listen string `yaml:"listen"`
	// LAN lets machines of the local network find this node, and ask an owner's to be let in.
	LAN bool `yaml:"lan"`
	// Announce is the text of an announce.List: addresses that others are told, beside those that are found.
	Announce string `yaml:"announce"`
	// Relay is how fast this node relays data between members that cannot reach each other.
	Relay RelayRate `yaml:"relay"`
	// KeepWhole says whether this node keeps the newest checkpoint with all layers: auto is on owners' nodes. Empty is what the
	// folder had before, and else auto.
	KeepWhole string `yaml:"keep_whole"`
	// Notices is the text of a notice.Setting: whose notices that this machine is taken away are listened for; empty is
	// NoticesEnv, or auto.
	Notices string `yaml:"notices"`
	// Grace is how long this process has after SIGTERM, or the machine after SIGPWR.
	Grace Grace `yaml:"grace"`
	// OnLostMajority is what this node does when a majority of the run's voters is lost.
	OnLostMajority LostMajority `yaml:"on_lost_majority"`
	// AwaitHolders is how long a start of the whole run waits, where this node leads, for nodes that alone have layers of the newest checkpoint. For
	// one that is lost while others go on they wait as long as it takes to do the steps again, 5 s to 1 min.
	AwaitHolders Moment `yaml:"await_holders"`
	// Threads is how many cores to compute on; 0 is all.
	Threads int `yaml:"threads"`
	// Devices are what to compute on.
	Devices Devices `yaml:"devices"`
	// Memory is how much of theirs may be taken.
	Memory Memory `yaml:"memory"`
	// SampleEvery is the number of steps from one text that the model writes on this node to the next, 0 for none. Each begins with SamplePrompt.
	SampleEvery  int    `yaml:"sample_every"`
	SamplePrompt string `yaml:"sample_prompt"`
	// Trace is a file for the timeline of every step.
	Trace string `yaml:"trace"`
	// Metrics is the address at which a scraper reads the node's metrics without a key; empty is none. A bare port is one of loopback.
	Metrics string `yaml:"metrics"`
	// TensorBoard is a folder for event files, CSV a file of a line a step, MLflow the URL of a tracking server; empty is none.
	TensorBoard string `yaml:"tensorboard"`
	CSV         string `yaml:"csv"`
	MLflow      string `yaml:"mlflow"`
	// OTLP is the URL of an OpenTelemetry collector, which gets a trace of every OTLPEvery-th step; empty is none.
	OTLP      string `yaml:"otlp"`
	OTLPEvery int    `yaml:"otlp_every"`
	// JSON writes one object a step to standard output.
	JSON bool `yaml:"json"`
	// LogLevel is debug, info, warn or error.
	LogLevel string `yaml:"log_level"`

	// extends is the last step that a resumed run is to have; 0 leaves it.
	extends int
	// inFile names the settings that only the run file has, by key, for errors.
	inFile map[string]string
}

// Default returns the settings of a run of a few minutes on two cores.
func Default() Config {
	return Config{
		Preset:         "nano",
		Steps:          600,
		Seed:           1,
		Micros:         4,
		MicroBatch:     4,
		LR:             5e-3,
		MinLR:          5e-4,
		WarmupSteps:    50,
		WeightDecay:    0.1,
		ClipNorm:       1,
		HeldOutEvery:   50,
		Keep:           3,
		SampleBytes:    400,
		Schedule:       autoSchedule,
		Recompute:      plan.RecomputeRule{}.String(),
		PostValidation: postAuto,
		Sync:           plan.SyncRule{}.String(),
		Optimizer:      plan.AdamW.String(),
		Momentum:       0.95,
		Shard:          plan.ShardAuto.String(),
		Storage:        plan.StorageAuto.String(),
		Codec:          plan.CodecRules()[0],
		MinNodes:       1,
		Voters:         string(plan.VotersAuto),
		AwaitOwner:     Moment(30 * time.Minute),
		Grace:          Grace(usualGrace),
		AwaitHolders:   Moment(5 * time.Minute),
		OTLPEvery:      100,
		LogLevel:       "warn",
	}
}

// Coefficients of AdamW that no run has had to change: Brown et al. 2020, appendix B.
const (
	beta1 = 0.9
	beta2 = 0.95
	eps   = 1e-8
)

// Model returns the preset's configuration with the settings that change it. The error wraps ErrInvalid.
func (c Config) Model() (model.Config, error) {
	m, err := model.Preset(c.Preset)
	if err != nil {
		return m, c.invalid("preset", c.Preset, "one of "+strings.Join(model.PresetNames(), ", "))
	}
	m = c.adjust(m)
	return m, c.validateModel(m)
}

// adjust returns a model with the settings that change it: new adapters get defaults that fit it.
func (c Config) adjust(m model.Config) model.Config {
	if c.Context > 0 {
		m.Context = c.Context
	}
	m.EmbedDropout, m.ResidualDropout = c.Dropout, c.Dropout
	if c.LoRARank == 0 {
		return m
	}
	usual := "c_attn"
	if m.Positions == model.RoPE {
		usual = "q_proj,v_proj"
	}
	m.LoRA = model.LoRA{
		Rank: c.LoRARank, Alpha: cmp.Or(c.LoRAAlpha, 2*float64(c.LoRARank)), Targets: cmp.Or(c.LoRATargets, usual),
	}
	return m
}

// Fit returns the configuration of given weights with the settings that change it: Context may be
// lower, and learned positions are cut to it. The error wraps ErrInvalid.
func (c Config) Fit(m model.Config) (model.Config, error) {
	own := m.Context
	m = c.adjust(m)
	if m.Context > own {
		return m, c.invalid("context", c.Context, fmt.Sprintf("1 to %d, the longest sequence that the model of --init takes", own))
	}
	return m, c.validateModel(m)
}

// validateModel checks what depends on the model.
func (c Config) validateModel(m model.Config) error {
	if err := m.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return c.validateCut(m)
}

// RunSpec returns the part of a valid configuration that the nodes of a run agree on, with the model that it gives; the
// settings of this node alone are left out. The error wraps ErrInvalid.
func (c Config) RunSpec(m model.Config, data plan.DataSpec, run plan.RunID) (plan.RunSpec, error) {
	if err := c.Validate(); err != nil {
		return plan.RunSpec{}, err
	}
	if err := c.validateModel(m); err != nil {
		return plan.RunSpec{}, err
	}
	rules, err := c.rules()
	if err != nil {
		return plan.RunSpec{}, err
	}
	return plan.RunSpec{
		Run:   run,
		Model: m,
		Data:  data,
		Train: plan.TrainSpec{
			Seed:               c.Seed,
			Steps:              plan.Step(c.Steps),
			Micros:             c.Micros,
			MicroBatch:         c.MicroBatch,
			LR:                 c.LR,
			MinLR:              c.MinLR,
			WarmupSteps:        plan.Step(c.WarmupSteps),
			DecaySteps:         plan.Step(c.DecaySteps),
			Optimizer:          rules.Optimizer,
			Momentum:           rules.Momentum,
			Beta1:              beta1,
			Beta2:              beta2,
			Eps:                eps,
			Decay:              c.WeightDecay,
			ClipNorm:           c.ClipNorm,
			HeldOutEvery:       plan.Step(c.HeldOutEvery),
			CheckpointEvery:    plan.Step(c.CheckpointEvery),
			KeepCheckpoints:    c.Keep,
			SampleTokens:       c.SampleBytes,
			Replicas:           int(c.Replicas),
			Stages:             int(c.Stages),
			Schedule:           c.schedule(),
			SumGroups:          int(c.SumGroups),
			UnevenShares:       c.UnevenShares,
			DocumentMask:       c.DocumentMask,
			Recompute:          rules.Recompute,
			PostValidation:     c.PostValidation == postAuto,
			Shard:              rules.Shard,
			Sync:               rules.Sync,
			Storage:            rules.Storage,
			StochasticRounding: c.StochasticRounding,
			Codec:              rules.Codec,
			MinNodes:           c.MinNodes,
			Voters:             c.voters(),
			AwaitOwnerS:        int64(time.Duration(c.AwaitOwner) / time.Second),
		},
	}, nil
}

// Parameters returns the settings of a new run that decide what is trained and how, as people call them; none for one that is resumed, which has
// its own.
func (c Config) Parameters() map[string]string {
	if c.Resume {
		return nil
	}
	all := map[string]string{}
	v := reflect.ValueOf(&c).Elem()
	for _, f := range fieldsOf(v.Type()) {
		if key := f.Tag.Get("yaml"); slices.Contains(parameters, key) {
			all[key] = strings.Trim(text(v.FieldByIndex(f.Index)), `"`)
		}
	}
	return all
}

// parameters are the keys of Parameters.
var parameters = []string{
	"preset", "context", "steps", "seed", "micros", "micro_batch", "lr", "min_lr", "warmup_steps", "decay_steps", "weight_decay", "optimizer", "momentum", "clip_norm", "dropout",
	"lora_rank", "replicas", "stages", "schedule", "sum_groups", "sync", "recompute", "storage", "codec", "data_limit", "held_out_every",
}

// voters returns who votes. Where all nodes are of this machine nobody is a newcomer.
func (c Config) voters() plan.VoterRule {
	rule := plan.VoterRule(c.Voters)
	if rule == plan.VotersAuto && c.Listen == "" && (c.Local > 0 || c.Cluster != "") {
		return plan.VotersAny
	}
	return rule
}

// Extends returns the last step that a resumed run is to have, 0 for the one that it has.
func (c Config) Extends() plan.Step { return plan.Step(c.extends) }

// Level returns LogLevel for log/slog.
func (c Config) Level() slog.Level {
	var l slog.Level
	if l.UnmarshalText([]byte(c.LogLevel)) != nil {
		return slog.LevelWarn
	}
	return l
}

// MachineName returns what people call this machine: Name, or the host name without the characters that no
// name has. It is empty where there is neither.
func (c Config) MachineName() string {
	host, _ := os.Hostname() // without one the peer ID stands for it
	return cmp.Or(c.Name, plan.NameFrom(host))
}
