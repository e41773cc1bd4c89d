package config

import (
	"bytes"
	"errors"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/model"
	"pnode/planner"
)

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
}

// odd has a value other than the default in every field.
func odd() Config {
	return Config{
		Init: "some weights", Context: 96, Data: []string{"a: b", "- x", "#h", "*.txt", "1", "true", `c:\d`, "two\nlines "},
		DataLimit: 3 << 20, Steps: 7, Seed: math.MaxUint64, Micros: 6, MicroBatch: 2,
		LR: 0.30000000000000004, MinLR: 1e-7, WarmupSteps: 3, WeightDecay: 0.01, ClipNorm: 0.5,
		Dropout: 0.1, LoRA: "ad/apter", LoRARank: 4, LoRAAlpha: 12, LoRATargets: "q_proj,o_proj", HeldOutEvery: 2, CheckpointEvery: 9, Keep: 1, SampleBytes: 5, Replicas: 2, Stages: 3, Schedule: "zb-h1", UnevenShares: true,
		DocumentMask: true, Recompute: "block", Shard: "on", Storage: "bf16", Codec: "int8", MinNodes: 4, Local: 6, Cluster: "c.yaml", Emulate: "e.yaml", Dir: "/tmp/a dir", Resume: true, Listen: ":0", Threads: 2, Trace: "t.json",
		JSON: true, LogLevel: "debug",
	}
}

func TestPrintedConfigLoadsBack(t *testing.T) {
	for name, c := range map[string]Config{"default": Default(), "odd": odd()} {
		var b strings.Builder
		if err := c.Print(&b); err != nil {
			t.Fatal(err)
		}
		got, err := Parse(name, []byte(b.String()))
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, b.String())
		}
		if !reflect.DeepEqual(got, c) {
			t.Errorf("%s:\n got %+v\nwant %+v\nfrom\n%s", name, got, c, b.String())
		}
	}
}

// TestOddDiffersFromDefault keeps the round trip honest: a field that Print forgot would
// come back as its default.
func TestOddDiffersFromDefault(t *testing.T) {
	o, d := reflect.ValueOf(odd()), reflect.ValueOf(Default())
	for i, key := range Keys() {
		if reflect.DeepEqual(o.Field(i).Interface(), d.Field(i).Interface()) {
			t.Errorf("%s has its default in odd()", key)
		}
	}
}

func TestMergeTakesGivenFlagsOnly(t *testing.T) {
	file, flags := Default(), Default()
	file.Steps, file.Seed, file.Data = 11, 12, []string{"from-file"}
	flags.Steps, flags.Seed, flags.LR = 600, 99, 0.5 // steps: given, and equal to the default
	given := map[string]bool{"steps": true, "lr": true}
	got := Merge(file, flags, func(key string) bool { return given[key] })
	want := file
	want.Steps, want.LR = 600, 0.5
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	if file.Steps != 11 {
		t.Error("Merge changed its argument")
	}
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct{ content, want string }{
		{"seed: 3\nstpes: 1", `config: run.yaml:2: unknown key "stpes": did you mean "steps"?`},
		{"colour: red", `config: run.yaml:1: unknown key "colour": want one of preset, init, context, data, data_limit, `},
		{"xy: 1", `config: run.yaml:1: unknown key "xy": want one of preset, `},
		{"micro-batch: 3", `config: run.yaml:1: unknown key "micro-batch": did you mean "micro_batch"?`},
		{"steps: 1\nsteps: 2", `config: run.yaml: line 2: mapping key "steps" already defined at [1:1]`},
		{"steps: 1.5", `config: run.yaml:1: steps: "1.5": want a whole number`},
		{"\nsteps: 99999999999999999999", `config: run.yaml:2: steps: "99999999999999999999": want a whole number`},
		{"seed: -1", `config: run.yaml:1: seed: "-1": want a whole number from 0 to 18446744073709551615`},
		{"lr: fast", `config: run.yaml:1: lr: "fast": want a number`},
		{"lr: [1]", `config: run.yaml:1: lr: want one value, not a list`},
		{"json: yes", `config: run.yaml:1: json: "yes": want true or false`},
		{"replicas: 0", `config: run.yaml:1: replicas: "0": want auto, or a number from 1`},
		{"data_limit: 1e9", `config: run.yaml:1: data_limit: "1e9": want a size such as 500KB, 16MB or 2GiB`},
		{"steps:", `config: run.yaml:1: steps: no value: give one or remove the key`},
		{"data: {a: b}", `config: run.yaml:1: data: want a plain value`},
		{"data: [[a]]", `config: run.yaml:1: data: a list in a list: want paths`},
		{"- steps", "config: run.yaml:1: want lines of the form `key: value`"},
		{"seed: 1\n---\nseed: 2", `config: run.yaml:3: a second document: remove it and its ---`},
		{"data: [a", `config: run.yaml: line 1: sequence end token ']' not found`},
		{strings.Repeat("#", maxFileBytes+1), `config: run.yaml: longer than 1048576 bytes`},
	} {
		_, err := Parse("run.yaml", []byte(tt.content))
		if err == nil || err.Error() != tt.want && !(strings.HasSuffix(tt.want, ", ") && strings.HasPrefix(err.Error(), tt.want)) {
			t.Errorf("%.40q:\n got %v\nwant %s", tt.content, err, tt.want)
		}
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40q: does not wrap ErrInvalid", tt.content)
		}
	}
}

func TestParseAccepts(t *testing.T) {
	for content, change := range map[string]func(*Config){
		"":                        func(*Config) {},
		"# nothing\n":             func(*Config) {},
		"data: one.txt":           func(c *Config) { c.Data = []string{"one.txt"} },
		"data: []":                func(*Config) {},
		"data: [1, 'b c']":        func(c *Config) { c.Data = []string{"1", "b c"} },
		"replicas: auto":          func(*Config) {},
		"stages: 3":               func(c *Config) { c.Stages = 3 },
		"data_limit: 2gib":        func(c *Config) { c.DataLimit = 2 << 30 },
		"data_limit: 12345":       func(c *Config) { c.DataLimit = 12345 },
		"lr: 1":                   func(c *Config) { c.LR = 1 },
		"seed: 5 # five\nkeep: 2": func(c *Config) { c.Seed, c.Keep = 5, 2 },
	} {
		want := Default()
		change(&want)
		got, err := Parse("run.yaml", []byte(content))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %v\n got %+v\nwant %+v", content, err, got, want)
		}
	}
}

func TestLoadMissingFile(t *testing.T) {
	_, err := Load(t.TempDir() + "/no.yaml")
	if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "no.yaml") {
		t.Errorf("got %v", err)
	}
}

func TestValidateNamesFieldValueAndRange(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Preset = "nanno" }, "config: preset is nanno: want one of nano, "},
		{func(c *Config) { c.Steps = 0 }, "config: steps is 0: want 1 to 1000000000"},
		{func(c *Config) { c.Steps = -4 }, "config: steps is -4: want 1 to"},
		{func(c *Config) { c.Micros = 0 }, "config: micros is 0: want 1 to"},
		{func(c *Config) { c.MicroBatch = 1 << 40 }, "config: micro_batch is 1099511627776: want 1 to"},
		{func(c *Config) { c.LR = math.NaN() }, "config: lr is NaN: want 0 to 10"},
		{func(c *Config) { c.LR = 1e-4 }, "config: min_lr is 0.0005: want 0 to 0.0001"},
		{func(c *Config) { c.DataLimit = 3 }, "config: data_limit is 3B: want 0 for no limit, or 1KiB to 64GiB"},
		{func(c *Config) { c.Replicas = 5 }, "config: replicas is 5: want auto, or 1 to 4"},
		{func(c *Config) { c.Schedule = "magic" }, "config: schedule is magic: planner: bad input: schedule: unknown schedule: "},
		{func(c *Config) { c.Schedule, c.Stages = "chimera", 3 }, "config: schedule is chimera: 3 devices: chimera: "},
		{func(c *Config) { c.Stages = 99 }, "config: stages is 99: want auto, or 1 to 6, the layers of nano"},
		{func(c *Config) { c.Local, c.Replicas, c.Stages = 3, 2, 2 }, "config: local is 3: want at least 4 nodes for 2 replicas of 2 stages"},
		{func(c *Config) { c.Local, c.Stages = 1, 2 }, "config: local is 1: want at least 2 nodes for 2 stages"},
		{func(c *Config) { c.Local, c.Replicas, c.Stages = 1, 1, 2 }, "config: local is 1: want at least 2 nodes for 1 replica of 2 stages"},
		{func(c *Config) { c.Listen = "localhost:x" }, `config: listen is localhost:x: want "host:port"`},
		{func(c *Config) { c.Listen = "my.host:4001" }, `config: listen is my.host:4001: want "host:port", such as 0.0.0.0:4001 or 127.0.0.1:0, with an IP address of this machine, not a name`},
		{func(c *Config) { c.Local = 65 }, "config: local is 65: want 0 to 64"},
		{func(c *Config) { c.MinNodes = 65 }, "config: min_nodes is 65: want 1 to 64"},
		{func(c *Config) { c.Local, c.MinNodes = 3, 5 }, "config: min_nodes is 5: want 1 to 3, the nodes that local starts"},
		{func(c *Config) { c.Micros, c.Replicas, c.Stages = 32, 32, 3 }, "config: replicas is 32: want fewer, or fewer stages: 32 replicas of 3 stages need 96 nodes, a run has at most 64"},
		{func(c *Config) { c.Listen = "4001" }, `config: listen is 4001: want "host:port"`},
		{func(c *Config) { c.Listen = ":99999" }, `config: listen is :99999: want "host:port"`},
		{func(c *Config) { c.LogLevel = "loud" }, "config: log_level is loud: want one of debug, info, warn, error"},
		{func(c *Config) { c.Dropout = 1 }, "config: dropout is 1: want 0 to 0.99"},
		{func(c *Config) { c.LoRARank = 4 }, "config: lora_rank is 4: want 0 without init"},
		{func(c *Config) { c.LoRA = "a" }, "config: lora is a: want none without init"},
		{func(c *Config) { c.Preset, c.Init, c.LoRA, c.LoRARank = "", "x", "a", 4 }, "config: lora_rank is 4: want 0: the adapters in a have their own"},
		{func(c *Config) { c.Preset, c.Init, c.LoRA, c.LoRAAlpha = "", "x", "a", 4 }, "config: lora_alpha is 4: want 0: the adapters in a"},
		{func(c *Config) { c.Preset, c.Init, c.LoRA, c.LoRATargets = "", "x", "a", "q" }, "config: lora_targets is q: want none: the adapters in a"},
		{func(c *Config) { c.LoRARank = -1 }, "config: lora_rank is -1: want 0 to 4096"},
		{func(c *Config) { c.LoRAAlpha = 4 }, "config: lora_alpha is 4: want 0 without lora_rank"},
		{func(c *Config) { c.LoRAAlpha = math.NaN() }, "config: lora_alpha is NaN: want 0 to"},
		{func(c *Config) { c.LoRATargets = "q_proj" }, "config: lora_targets is q_proj: want none without lora_rank"},
		{func(c *Config) { c.Codec = "fp4" }, "config: codec is fp4: want one of f32, bf16, int8, auto, auto:bf16"},
		{func(c *Config) { c.Storage = "f16" }, "config: storage is f16: want one of f32, bf16"},
		{func(c *Config) { c.Recompute = "all" }, "config: recompute is all: want one of auto, none, outputs, block"},
		{func(c *Config) { c.Shard = "maybe" }, "config: shard is maybe: want one of auto, on, off"},
		{func(c *Config) { c.Data = []string{""} }, `config: data is "": want paths`},
	} {
		c := Default()
		tt.change(&c)
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || !errors.Is(err, ErrInvalid) {
			t.Errorf(" got %v\nwant %s", err, tt.want)
		}
		if _, err := c.RunSpec(nano(t), planner.DataSpec{}, "r"); !errors.Is(err, ErrInvalid) {
			t.Errorf("RunSpec accepts what Validate refuses: %s", tt.want)
		}
	}
}

func TestModelComesFromInit(t *testing.T) {
	given := func(keys ...string) func(string) bool {
		return func(key string) bool { return slices.Contains(keys, key) }
	}
	flags := Default()
	flags.Init = "weights"
	c, err := Effective("", flags, given("init"))
	if err != nil || c.Preset != "" || c.LR != tuningLR || c.MinLR != tuningLR/10 {
		t.Errorf("preset %q, lr %v, %v, %v", c.Preset, c.LR, c.MinLR, err)
	}
	var printed bytes.Buffer
	if err := c.Print(&printed); err != nil {
		t.Fatal(err)
	}
	again, err := Parse("printed", printed.Bytes())
	if err != nil || !reflect.DeepEqual(again, c) || again.Validate() != nil {
		t.Errorf("%+v, %v, %v", again, err, again.Validate())
	}
	_, err = Effective("", flags, given("init", "preset"))
	if want := "config: preset is nano: want none: the model comes from init, weights"; err == nil || err.Error() != want || !errors.Is(err, ErrInvalid) {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestLearningRateFitsThePreset(t *testing.T) {
	flags := Default()
	flags.Preset, flags.LR = "gpt2-124m", 1e-3
	for keys, want := range map[string]float64{"preset": 6e-4, "preset lr": 1e-3} {
		c, err := Effective("", flags, func(key string) bool { return slices.Contains(strings.Fields(keys), key) })
		if err != nil || c.LR != want {
			t.Errorf("%s: lr %v, %v, want %v", keys, c.LR, err, want)
		}
	}
	for name := range usualLR {
		if _, err := model.Preset(name); err != nil {
			t.Error(err)
		}
	}
}

func TestFit(t *testing.T) {
	learned := model.Config{Vocab: 256, Context: 64, Blocks: 2, Heads: 2, Channels: 16}
	rotary := learned
	rotary.Positions = model.RoPE
	for _, tt := range []struct {
		model       model.Config
		context, to int
		want        string
	}{
		{learned, 0, 64, ""},
		{learned, 64, 64, ""},
		{learned, 32, 0, "context is 32: want 64, the number of positions"},
		{rotary, 0, 64, ""},
		{rotary, 16, 16, ""},
		{rotary, 65, 0, "context is 65: want 1 to 64, the longest"},
	} {
		c := Default()
		c.Preset, c.Init, c.Context = "", "weights", tt.context
		m, err := c.Fit(tt.model)
		switch {
		case tt.want == "" && (err != nil || m.Context != tt.to):
			t.Errorf("%d: %+v, %v", tt.context, m, err)
		case tt.want != "" && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%d: got %v, want %s", tt.context, err, tt.want)
		}
	}
	c := Default()
	c.Preset, c.Init, c.Stages = "", "weights", 5
	if _, err := c.Fit(learned); err == nil || !strings.Contains(err.Error(), "1 to 4, the layers of the model") {
		t.Error(err)
	}
	c = Default()
	c.Context = 32
	if m, err := c.Model(); err != nil || m.Context != 32 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestAdaptersFitTheWeights(t *testing.T) {
	gpt2 := model.Config{Vocab: 256, Context: 64, Blocks: 2, Heads: 2, Channels: 16}
	rotary := gpt2
	rotary.Positions = model.RoPE
	c := Default()
	c.Preset, c.Init, c.LoRARank = "", "weights", 4
	for want, m := range map[string]model.Config{"c_attn": gpt2, "q_proj,v_proj": rotary} {
		if got, err := c.Fit(m); err != nil || got.LoRA != (model.LoRA{Rank: 4, Alpha: 8, Targets: want}) {
			t.Errorf("%+v, %v, want %s", got.LoRA, err, want)
		}
	}
	c.LoRAAlpha, c.LoRATargets = 2, "k_proj"
	if got, err := c.Fit(rotary); err != nil || got.LoRA != (model.LoRA{Rank: 4, Alpha: 2, Targets: "k_proj"}) {
		t.Errorf("%+v, %v", got.LoRA, err)
	}
	if _, err := c.Fit(gpt2); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), `lora.targets has "k_proj": take names of c_attn, c_fc, c_proj`) {
		t.Error(err)
	}
	flags := Default()
	flags.Init, flags.LoRARank = "weights", 4
	got, err := Effective("", flags, func(key string) bool { return key == "init" || key == "lora_rank" })
	if err != nil || got.LR != adapterLR {
		t.Errorf("lr is %v, %v", got.LR, err)
	}
}

func TestDropoutIsOfTheModel(t *testing.T) {
	c := Default()
	c.Dropout = 0.25
	preset, err := c.Model()
	if err != nil || preset.EmbedDropout != 0.25 || preset.ResidualDropout != 0.25 {
		t.Errorf("%+v, %v", preset, err)
	}
	c.Preset, c.Init, c.Dropout = "", "weights", 0
	if m, err := c.Fit(preset); err != nil || m.EmbedDropout != 0 || m.ResidualDropout != 0 {
		t.Errorf("the dropout that a model came with stays: %+v, %v", m, err)
	}
}

func TestRunSpecCarriesEverySetting(t *testing.T) {
	c := odd()
	c.LoRA = "" // has a rank of its own
	data := planner.DataSpec{SizeBytes: 77, HeldOutPermille: 100}
	weights, err := model.Preset("llama-160m")
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Fit(weights)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := c.RunSpec(m, data, "the-run")
	if err != nil {
		t.Fatal(err)
	}
	want := planner.TrainSpec{
		Seed: math.MaxUint64, Steps: 7, Micros: 6, MicroBatch: 2, LR: 0.30000000000000004, MinLR: 1e-7, WarmupSteps: 3,
		Beta1: beta1, Beta2: beta2, Eps: eps, Decay: 0.01, ClipNorm: 0.5, HeldOutEvery: 2, CheckpointEvery: 9,
		KeepCheckpoints: 1, SampleTokens: 5, Replicas: 2, Stages: 3, Schedule: "zb-h1", UnevenShares: true, DocumentMask: true, Recompute: planner.Recompute(model.RecomputeBlock), Shard: planner.ShardOn, Storage: model.StorageBF16, Codec: codecRule(t, "int8"), MinNodes: 6,
	}
	if spec.Train != want || spec.Run != "the-run" || !reflect.DeepEqual(spec.Data, data) || spec.Model.Blocks != 12 || spec.Model.Context != 96 {
		t.Errorf("got %+v\nwant train %+v", spec, want)
	}
}

func TestBytesText(t *testing.T) {
	for text, want := range map[string]Bytes{
		"0": 0, "7": 7, "7B": 7, "16MB": 16_000_000, "16 mb": 16_000_000, "1KiB": 1024, "2TB": 2_000_000_000_000, "1023": 1023,
	} {
		var b, again Bytes
		if err := b.Set(text); err != nil || b != want {
			t.Errorf("%q: got %d, %v, want %d", text, b, err, want)
		}
		if err := again.Set(b.String()); err != nil || again != b {
			t.Errorf("%d prints as %s, which reads as %d, %v", b, b, again, err)
		}
	}
	for _, text := range []string{"", "MB", "-1", "1.5MB", "9999999TB", "9223372036854775808", "1XB"} {
		if err := new(Bytes).Set(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// FuzzParse looks for content that panics or loads as something that does not survive
// Print.
func FuzzParse(f *testing.F) {
	var b strings.Builder
	if err := odd().Print(&b); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(b.String()))
	f.Add([]byte("data: [a, \"b\\u0085\", 'c\r\nd', |]\nlr: 1e-3"))
	f.Add([]byte("data:\n- >\n  folded\n  text\n- |+\n  kept\n\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := Parse("run.yaml", content)
		if err != nil {
			return
		}
		var b strings.Builder
		if err := c.Print(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("printed", []byte(b.String()))
		if err != nil {
			t.Fatalf("%v\n%s", err, b.String())
		}
		if !reflect.DeepEqual(again, c) {
			t.Fatalf("got %+v\nwant %+v\nfrom\n%s", again, c, b.String())
		}
	})
}

// TestEveryKeyIsOfTheNodeOrOfTheRun: with --resume a key is either free or refused, by flag
// and in a file.
func TestEveryKeyIsOfTheNodeOrOfTheRun(t *testing.T) {
	flags := odd()
	flags.Local, flags.Replicas, flags.Stages = 0, 0, 0
	const device = "matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 1GB"
	flags.Cluster, flags.Emulate = write(t, "devices: [{"+device+"}]"), write(t, "device: {"+device+"}")
	free := map[string]bool{
		"dir": true, "resume": true, "local": true, "cluster": true, "emulate": true, "listen": true, "threads": true, "trace": true, "json": true, "log_level": true,
	}
	for _, key := range Keys() {
		_, err := Effective("", flags, func(k string) bool { return k == key || k == "resume" })
		if free[key] != (err == nil) {
			t.Errorf("%s with --resume: %v", key, err)
		}
		if err != nil && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), flagOf(key)+" cannot be given with --resume")) {
			t.Errorf("%s with --resume: %v", key, err)
		}
	}
	file := t.TempDir() + "/run.yaml"
	if err := os.WriteFile(file, []byte("resume: true\nthreads: 2\nlr: 0.1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := func(string) bool { return false }
	if _, err := Effective(file, Default(), none); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "lr (in "+file+") cannot be given with --resume") {
		t.Errorf("a file with lr: %v", err)
	}
	if err := os.WriteFile(file, []byte("resume: true\nthreads: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Effective(file, Default(), none); err != nil || c.Threads != 2 || !c.Resume {
		t.Errorf("a file of a node's settings: %+v, %v", c, err)
	}
}

func TestTheLeastRateFollowsALowerRate(t *testing.T) {
	c, err := Parse("run.yaml", []byte("lr: 0.0001\n"))
	if err != nil || c.MinLR != 1e-5 || c.Validate() != nil {
		t.Errorf("min_lr is %v (%v), want a tenth of lr", c.MinLR, err)
	}
	c, err = Parse("run.yaml", []byte("lr: 0.0001\nmin_lr: 0.0002\n"))
	if err != nil || c.MinLR != 2e-4 {
		t.Errorf("min_lr is %v (%v), want what was given", c.MinLR, err)
	}
}

func nano(t *testing.T) model.Config {
	t.Helper()
	m, err := model.Preset("nano")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func codecRule(t *testing.T, text string) planner.CodecRule {
	t.Helper()
	rule, err := planner.ParseCodecRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}
