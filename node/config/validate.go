package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"pnode/node/export/mlflow"
	"pnode/node/export/otlp"
	"pnode/node/notice"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/announce"
)

// Upper bounds; far above sense, far below what overflows.
const (
	maxSteps      = 1_000_000_000
	maxMicros     = 1 << 16
	maxMicroBatch = 1 << 12
	// MaxNodes is how many nodes a run can have: what its roster takes
	// (consensus.MaxMembers).
	MaxNodes = 1000
	// MaxLocal is how many node processes one machine is asked to run.
	MaxLocal   = 64
	MaxThreads = 4096
	maxKeep    = 10_000
	maxSample  = 16 << 10
	maxPrompt  = 1 << 10 // half of a text
	maxContext = 1 << 20
	maxDropout = 0.99
	maxLR      = 10
	maxRank    = 1 << 12
	maxAlpha   = 1e6
	maxData    = 64 << 30 // dataset.MaxBytes
	// MinData is the least text that is worth a try: a few sequences.
	MinData = 1 << 10
)

// Values of Config.KeepWhole.
const (
	KeepAuto = "auto"
	KeepOn   = "on"
	KeepOff  = "off"
)

// KeepWholeValues lists them.
var KeepWholeValues = []string{KeepAuto, KeepOn, KeepOff}

var logLevels = []string{"debug", "info", "warn", "error"}

// Validate names the first setting that does not fit, its value and what is accepted; the error wraps ErrInvalid.
func (c Config) Validate() error {
	if err := cmp.Or(c.validateCounts(), c.validateRates()); err != nil {
		return err
	}
	if c.Init == "" {
		if _, err := c.Model(); err != nil {
			return err
		}
	} else if c.Preset != "" { // what is in Init is looked at later
		return c.invalid("preset", c.Preset, "none: the model comes from --init, "+c.Init)
	}
	_, err := c.rules()
	return cmp.Or(c.validateAdapters(), err, c.validateNode())
}

// validateAdapters leaves the names of the targets to the model.
func (c Config) validateAdapters() error {
	switch {
	case c.LoRA != "" && c.Init == "":
		return c.refuse("lora", c.LoRA, errors.New("needs --init FOLDER: adapters change the weights of a model that is there"))
	case c.LoRA != "" && c.LoRARank != 0:
		return c.invalid("lora_rank", c.LoRARank, "0: the adapters in "+c.LoRA+" have their own")
	case c.LoRA != "" && c.LoRAAlpha != 0:
		return c.invalid("lora_alpha", c.LoRAAlpha, "0: the adapters in "+c.LoRA+" have their own")
	case c.LoRA != "" && c.LoRATargets != "":
		return c.invalid("lora_targets", c.LoRATargets, "none: the adapters in "+c.LoRA+" have their own")
	case c.LoRARank > 0 && c.Init == "":
		return c.refuse("lora_rank", c.LoRARank, errors.New("needs --init FOLDER: adapters change the weights of a model that is there"))
	case c.LoRARank == 0 && c.LoRAAlpha != 0:
		return c.invalid("lora_alpha", c.LoRAAlpha, "0 without --lora-rank, which is 0")
	case c.LoRARank == 0 && c.LoRATargets != "":
		return c.invalid("lora_targets", c.LoRATargets, "none without --lora-rank, which is 0")
	}
	return nil
}

func (c Config) validateCounts() error {
	local := MaxLocal
	if c.Cluster != "" {
		local = MaxNodes // of plans; who starts nodes looks again
	}
	for _, f := range []struct {
		key           string
		value, lo, hi int
	}{
		{"steps", c.Steps, 1, maxSteps},
		{"micros", c.Micros, 1, maxMicros},
		{"micro_batch", c.MicroBatch, 1, maxMicroBatch},
		{"decay_steps", c.DecaySteps, 0, maxSteps},
		{"warmup_steps", c.WarmupSteps, 0, maxSteps},
		{"held_out_every", c.HeldOutEvery, 1, maxSteps},
		{"checkpoint_every", int(c.CheckpointEvery), 0, maxSteps},
		{"keep", c.Keep, 1, maxKeep},
		{"lora_rank", c.LoRARank, 0, maxRank},
		{"sample_bytes", c.SampleBytes, 0, maxSample},
		{"sample_every", c.SampleEvery, 0, maxSteps},
		{"context", c.Context, 0, maxContext},
		{"min_nodes", c.MinNodes, 1, MaxNodes},
		{"local", c.Local, 0, local},
		{"threads", c.Threads, 0, MaxThreads},
	} {
		if f.value < f.lo || f.value > f.hi {
			return c.invalid(f.key, f.value, fmt.Sprintf("%d to %d", f.lo, f.hi))
		}
	}
	if c.Local > 0 && c.MinNodes > c.Local {
		return c.invalid("min_nodes", c.MinNodes, fmt.Sprintf("1 to %d, the nodes that --local starts; for more, raise --local, or leave it out and let others join with `pnode join`", c.Local))
	}
	if !slices.Contains(plan.VoterRules(), plan.VoterRule(c.Voters)) {
		return c.invalid("voters", c.Voters, "auto, owners or any")
	}
	if c.DataLimit != 0 && c.DataLimit < MinData || c.DataLimit > maxData {
		return c.invalid("data_limit", c.DataLimit, fmt.Sprintf("0 for no limit, or %s to %s", Bytes(MinData), Bytes(maxData)))
	}
	return nil
}

func (c Config) validateRates() error {
	if !(c.LR > 0 && c.LR <= maxLR) { // also refuses NaN
		return c.invalid("lr", c.LR, fmt.Sprintf("more than 0, up to %d: with 0 nothing is learned", maxLR))
	}
	for _, f := range []struct {
		key       string
		value, hi float64
		why       string
	}{
		{"min_lr", c.MinLR, c.LR, ", the learning rate (--lr)"},
		{"weight_decay", c.WeightDecay, 10, ""},
		{"clip_norm", c.ClipNorm, math.MaxFloat32, ""},
		{"momentum", c.Momentum, 0.9999, ""},
		{"lora_alpha", c.LoRAAlpha, maxAlpha, ""},
		{"dropout", c.Dropout, maxDropout, ""},
	} {
		if !(f.value >= 0 && f.value <= f.hi) { // also refuses NaN
			return c.invalid(f.key, f.value, fmt.Sprintf("0 to %g%s", f.hi, f.why))
		}
	}
	return nil
}

// The values of post_validation.
const (
	postAuto = "auto"
	postOff  = "off"
)

// rules returns a specification with the settings that trade memory or bytes on a link for time or precision, and no
// others. The error wraps ErrInvalid.
func (c Config) rules() (r plan.TrainSpec, err error) {
	refuse := func(key, text string, accepted []string) (plan.TrainSpec, error) {
		return plan.TrainSpec{}, c.invalid(key, text, "one of "+strings.Join(accepted, ", "))
	}
	if r.Recompute, err = plan.ParseRecompute(c.Recompute); err != nil {
		return refuse("recompute", c.Recompute, plan.RecomputeRules())
	}
	if r.Shard, err = plan.ParseShard(c.Shard); err != nil {
		return refuse("shard", c.Shard, plan.ShardRules())
	}
	if r.Sync, err = syncRule(c); err != nil {
		return plan.TrainSpec{}, err
	}
	if r.Optimizer, err = plan.ParseOptimizer(c.Optimizer); err != nil {
		return refuse("optimizer", c.Optimizer, plan.OptimizerRules())
	}
	if r.Optimizer == plan.Muon {
		r.Momentum = c.Momentum
	}
	if c.PostValidation != postAuto && c.PostValidation != postOff {
		return refuse("post_validation", c.PostValidation, []string{postAuto, postOff})
	}
	if r.Storage, err = plan.ParseStorage(c.Storage); err != nil {
		return refuse("storage", c.Storage, plan.StorageRules())
	}
	if c.StochasticRounding && !r.Storage.Allows(model.StorageBF16) {
		return plan.TrainSpec{}, c.invalid("stochastic_rounding", true, fmt.Sprintf("false with storage %v: weights are rounded by chance to bf16 alone", r.Storage))
	}
	if r.Codec, err = plan.ParseCodecRule(c.Codec); err != nil {
		return refuse("codec", c.Codec, plan.CodecRules())
	}
	return r, nil
}

// validateCut checks what the user fixed about the plan.
func (c Config) validateCut(m model.Config) error {
	layers := m.Layers()
	if c.Replicas < 0 || int(c.Replicas) > c.Micros {
		return c.invalid("replicas", c.Replicas, fmt.Sprintf("auto, or 1 to %d, the number of micro-batches (--micros)", c.Micros))
	}
	if c.SumGroups < 0 || int(c.SumGroups) > c.Micros {
		return c.invalid("sum_groups", c.SumGroups, fmt.Sprintf("auto, or 1 to %d, the number of micro-batches (--micros)", c.Micros))
	}
	if c.SumGroups > 0 && c.Replicas > c.SumGroups {
		return c.invalid("sum_groups", c.SumGroups, fmt.Sprintf("auto, or at least %d, the number of replicas: each takes whole groups", c.Replicas))
	}
	if c.Stages < 0 || int(c.Stages) > layers {
		return c.invalid("stages", c.Stages, fmt.Sprintf("auto, or 1 to %d, the layers of %s", layers, cmp.Or(c.Preset, "the model")))
	}
	if err := planner.CheckSchedule(c.schedule(), int(c.Replicas), int(c.Stages), m, plan.TrainSpec{Micros: c.Micros, SumGroups: int(c.SumGroups)}.Sums()); err != nil {
		return c.refuse("schedule", c.Schedule, fmt.Errorf("%w; auto leaves it to the planner, elastic is 1f1b with the warm-ups that hide the links", err))
	}
	rules, err := c.rules()
	if err != nil {
		return err
	}
	run := plan.RunSpec{Model: m, Train: plan.TrainSpec{MicroBatch: c.MicroBatch, Schedule: c.schedule(), Codec: rules.Codec}}
	if err := run.CheckMessages(int(c.Stages)); err != nil { // whether links take what crosses
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	cut := max(1, int(c.Replicas)) * max(1, int(c.Stages))
	if cut > MaxNodes {
		return c.invalid("replicas", c.Replicas, fmt.Sprintf("fewer, or fewer stages: %s need %d devices, a run has at most %d", c.cut(), cut, MaxNodes))
	}
	if c.Local > 0 && cut > max(c.Local, len(c.Devices.Names())) {
		if c.Cluster != "" {
			return c.invalid("cluster", c.Cluster, fmt.Sprintf("at least %d devices for %s: it has %d", cut, c.cut(), c.Local))
		}
		return c.invalid("local", c.Local, fmt.Sprintf("at least %d nodes for %s", cut, c.cut()))
	}
	return nil
}

// autoSchedule leaves the schedule to the planner. elasticSchedule is 1f1b, whose warm-ups the planner chooses in any
// case.
const (
	autoSchedule    = "auto"
	elasticSchedule = "elastic"
)

// schedule returns the text of the schedule that is asked for, empty for none.
func (c Config) schedule() string {
	switch c.Schedule {
	case autoSchedule:
		return ""
	case elasticSchedule:
		return plan.ScheduleName
	}
	return c.Schedule
}

// cut describes the cut of the model that the user fixed.
func (c Config) cut() string {
	var parts []string
	if c.Replicas > 0 {
		parts = append(parts, plan.Count(int(c.Replicas), "replica"))
	}
	if c.Stages > 0 {
		parts = append(parts, plan.Count(int(c.Stages), "stage"))
	}
	return strings.Join(parts, " of ")
}

func (c Config) validateNode() error {
	if !slices.Contains(logLevels, c.LogLevel) {
		return c.invalid("log_level", c.LogLevel, "one of "+strings.Join(logLevels, ", "))
	}
	if !slices.Contains(KeepWholeValues, c.KeepWhole) && c.KeepWhole != "" {
		return c.invalid("keep_whole", c.KeepWhole, "one of "+strings.Join(KeepWholeValues, ", "))
	}
	if c.LAN && c.Listen != "" && !Reachable(c.Listen) {
		return c.refuse("lan", c.LAN, fmt.Errorf("nobody in the local network reaches --listen %s, which is this machine alone: leave it out, or listen at :4001", c.Listen))
	}
	if c.Name != "" && !plan.ValidName(c.Name) {
		return c.invalid("name", strconv.Quote(c.Name), fmt.Sprintf("1 to %d letters, digits, '-', '.' and '_'", plan.MaxNameBytes))
	}
	paths := map[string][]string{
		"dir": {c.Dir}, "trace": {c.Trace}, "tensorboard": {c.TensorBoard}, "csv": {c.CSV}, "init": {c.Init}, "lora": {c.LoRA}, "cluster": {c.Cluster}, "emulate": {c.Emulate}, "data": c.Data,
	}
	for _, key := range slices.Sorted(maps.Keys(paths)) {
		if i := slices.IndexFunc(paths[key], func(path string) bool { return !utf8.ValidString(path) }); i >= 0 { // run.yaml could not say it
			return c.invalid(key, strconv.Quote(paths[key][i]), "a path in UTF-8")
		}
	}
	if slices.Contains(c.Data, "") {
		return c.invalid("data", `""`, "paths of files and folders, and globs")
	}
	if c.Emulate+c.Cluster != "" && c.Devices != "" && c.Devices != "cpu" {
		return c.invalid("devices", c.Devices, "auto or cpu with --emulate and --cluster: emulated devices live on the processor")
	}
	if c.Emulate+c.Cluster != "" && c.Memory != "" {
		return c.invalid("memory", c.Memory, "auto with --emulate and --cluster: the file says what memory an emulated device has")
	}
	for _, name := range c.Memory.Names() {
		if names := c.Devices.Names(); name != processor && len(names) > 0 && !slices.Contains(names, name) {
			return c.invalid("memory", c.Memory, "nothing about "+name+": devices are "+c.Devices.String())
		}
	}
	if c.Local > 0 && !c.Resume { // a run that is resumed has its devices in its folder
		if err := c.CheckMemory(c.Local); err != nil {
			return err
		}
	}
	if _, err := announce.Parse(c.Announce); err != nil {
		return c.refuse("announce", c.Announce, err)
	}
	if _, err := c.NoticeSetting(); err != nil {
		return err
	}
	if err := c.validateSamples(); err != nil {
		return err
	}
	if c.MLflow != "" {
		if _, err := mlflow.New(c.MLflow, mlflow.Credentials{}); err != nil {
			return c.refuse("mlflow", "no server", err) // a URL may hold a password
		}
	}
	if c.OTLP != "" {
		if _, err := otlp.Endpoint(c.OTLP); err != nil {
			return c.refuse("otlp", "no collector", err)
		}
		if c.OTLPEvery < 1 {
			return c.invalid("otlp_every", c.OTLPEvery, "1 or more steps from one that is traced to the next")
		}
	}
	if _, err := c.MetricsAddr(); err != nil {
		return err
	}
	if c.Listen == "" { // the node chooses
		return nil
	}
	_, err := c.listenAddr()
	return err
}

// validateSamples checks what has the model write while it trains.
func (c Config) validateSamples() error {
	switch {
	case c.SamplePrompt != "" && c.SampleEvery == 0:
		return c.invalid("sample_prompt", strconv.Quote(c.SamplePrompt), "none without --sample-every N, the steps from one text to the next")
	case len(c.SamplePrompt) > maxPrompt || !utf8.ValidString(c.SamplePrompt):
		return c.invalid("sample_prompt", strconv.Quote(wire.Clip(c.SamplePrompt, 40)), fmt.Sprintf("UTF-8 text of at most %d bytes", maxPrompt))
	case c.SampleEvery > 0 && c.KeepWhole == KeepOff:
		return c.invalid("keep_whole", c.KeepWhole, "on or auto with --sample-every: this machine needs the whole model to have it write")
	}
	return nil
}

// NoticeSetting returns whose notices are listened for. The error wraps ErrInvalid.
func (c Config) NoticeSetting() (notice.Setting, error) {
	if c.Notices != "" {
		s, err := notice.ParseSetting(c.Notices)
		if err != nil {
			return s, c.refuse("notices", c.Notices, err)
		}
		return s, nil
	}
	text := os.Getenv(NoticesEnv)
	s, err := notice.ParseSetting(text)
	if err != nil {
		return s, fmt.Errorf("%w: %s is %q: %w", ErrInvalid, NoticesEnv, text, err)
	}
	return s, nil
}

// invalid returns the error of a setting's value. It wraps ErrInvalid.
func (c Config) invalid(key string, value any, accepted string) error {
	return c.refuse(key, value, errors.New("want "+accepted))
}

// refuse returns an error about a setting, named as the user wrote it. It wraps ErrInvalid.
func (c Config) refuse(key string, value any, why error) error {
	return fmt.Errorf("%w: %s is %v: %w", ErrInvalid, c.written(key), value, why)
}

// written returns a setting's name as the user wrote it, or would write it: its flag, unless only the run file has it.
func (c Config) written(key string) string { return cmp.Or(c.inFile[key], flagOf(key)) }
