package config

import (
	"errors"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

func TestVotersOnOneMachine(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want plan.VoterRule
	}{
		{Config{Voters: "auto"}, plan.VotersAuto},
		{Config{Voters: "auto", Local: 3}, plan.VotersAny},
		{Config{Voters: "auto", Cluster: "c.yaml"}, plan.VotersAny},
		{Config{Voters: "auto", Local: 3, Listen: "0.0.0.0:4001"}, plan.VotersAuto},
		{Config{Voters: "owners", Local: 3}, plan.VotersOwners},
	} {
		if got := c.cfg.voters(); got != c.want {
			t.Errorf("%+v: %s, want %s", c.cfg, got, c.want)
		}
	}
}

func TestDefaultIsValid(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Fatal(err)
	}
}

// odd has a value other than the default in every field.
func odd() Config {
	return Config{
		Init: "some weights", Context: 96, Data: []string{"a: b", "- x", "#h", "*.txt", "1", "true", `c:\d`, "two\nlines "},
		DataLimit: 3 << 20, Column: "bo dy", SkipMalformed: true, Steps: 7, Seed: math.MaxUint64, Micros: 6, MicroBatch: 2,
		LR: 0.30000000000000004, MinLR: 1e-7, WarmupSteps: 3, DecaySteps: 6, WeightDecay: 0.01, ClipNorm: 0.5,
		Dropout: 0.1, LoRA: "ad/apter", LoRARank: 4, LoRAAlpha: 12, LoRATargets: "q_proj,o_proj", HeldOutEvery: 2, CheckpointEvery: 9, Keep: 1, SampleBytes: 5, Replicas: 2, Stages: 3, Schedule: "zb-h1", SumGroups: 2, Sync: "local:h=3,codec=int4,warmup=1,lr=0.9,momentum=0.25", UnevenShares: true,
		DocumentMask: true, Recompute: "block", PostValidation: "off", Optimizer: "muon", Momentum: 0.8, Shard: "off", Storage: "bf16", StochasticRounding: true, Codec: "int8", MinNodes: 4, Voters: "owners", AwaitOwner: Moment(90 * time.Second), Local: 6, Cluster: "c.yaml", Emulate: "e.yaml", Name: "desk-1.lan", Dir: "/tmp/a dir", Resume: true, Listen: ":0", LAN: true, Announce: "tcp/a.example:1", Relay: relayOff, KeepWhole: KeepOn, OnLostMajority: LostMajority(time.Hour), AwaitHolders: Moment(time.Minute), Notices: "aws=http://127.0.0.1:1338", Grace: Grace(90 * time.Second), Threads: 2, Devices: "cpu", Memory: "cpu=25%", SampleEvery: 4, SamplePrompt: "One: \"#\nupon", Trace: "t.json", Metrics: "9464", TensorBoard: "tb", CSV: "r.csv", MLflow: "https://mlflow.example", OTLP: "http://c.example", OTLPEvery: 7,
		JSON: true, LogLevel: "debug",
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

func TestRunSpecCarriesEverySetting(t *testing.T) {
	c := odd()
	c.LoRA = ""   // has a rank of its own
	c.Memory = "" // goes without emulated devices
	data := plan.DataSpec{SizeBytes: 77, HeldOutPermille: 100}
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
	want := plan.TrainSpec{
		Seed: math.MaxUint64, Steps: 7, Micros: 6, MicroBatch: 2, LR: 0.30000000000000004, MinLR: 1e-7, WarmupSteps: 3, DecaySteps: 6,
		Optimizer: plan.Muon, Momentum: 0.8, Beta1: beta1, Beta2: beta2, Eps: eps, Decay: 0.01, ClipNorm: 0.5, HeldOutEvery: 2, CheckpointEvery: 9,
		KeepCheckpoints: 1, SampleTokens: 5, Replicas: 2, Stages: 3, Schedule: "zb-h1", SumGroups: 2, Sync: plan.SyncRule{Local: true, Every: 3, Codec: "int4", Warmup: 1, LR: 0.9, Momentum: 0.25}, UnevenShares: true, DocumentMask: true, Recompute: plan.Recompute(model.RecomputeBlock), Shard: plan.ShardOff, Storage: plan.Storage(model.StorageBF16), StochasticRounding: true, Codec: codecRule(t, "int8"), MinNodes: 4, Voters: plan.VotersOwners, AwaitOwnerS: 90,
	}
	if spec.Train != want || spec.Run != "the-run" || !reflect.DeepEqual(spec.Data, data) || spec.Model.Blocks != 12 || spec.Model.Context != 96 {
		t.Errorf("got %+v\nwant train %+v", spec, want)
	}
}

// TestEveryKeyIsOfTheNodeOrOfTheRun: with --resume a key is either free or refused, by flag
// and in a file.
func TestEveryKeyIsOfTheNodeOrOfTheRun(t *testing.T) {
	flags := odd()
	flags.Local, flags.Replicas, flags.Stages = 0, 0, 0
	const device = "matmul: 1GFLOP/s, bandwidth: 1GB/s, memory: 1GB"
	flags.Cluster, flags.Emulate = write(t, "devices: [{"+device+"}]"), write(t, "device: {"+device+"}")
	free := map[string]bool{
		"dir": true, "resume": true, "local": true, "cluster": true, "emulate": true, "name": true, "listen": true, "lan": true, "announce": true, "relay": true, "keep_whole": true, "await_holders": true, "on_lost_majority": true, "steps": true, "notices": true, "grace": true, "threads": true, "devices": true, "memory": true, "sample_every": true, "sample_prompt": true, "trace": true, "tensorboard": true, "csv": true, "mlflow": true, "otlp": true, "otlp_every": true, "metrics": true, "json": true, "log_level": true,
	}
	for _, key := range Keys() {
		_, err := Effective("", flags, func(k string) bool {
			return k == key || k == "resume" || k == "sample_every" && key == "sample_prompt" // which goes with it alone
		})
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
	if _, err := Effective(file, Default(), none); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), file+": lr cannot be given with --resume") {
		t.Errorf("a file with lr: %v", err)
	}
	if err := os.WriteFile(file, []byte("resume: true\nthreads: 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Effective(file, Default(), none); err != nil || c.Threads != 2 || !c.Resume {
		t.Errorf("a file of a node's settings: %+v, %v", c, err)
	}
}

func codecRule(t *testing.T, text string) plan.CodecRule {
	t.Helper()
	rule, err := plan.ParseCodecRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return rule
}

// TestNamesOfMachines: one that is given must be a name; a host name is made one.
func TestNamesOfMachines(t *testing.T) {
	c := Default()
	if name := c.MachineName(); name != "" && !plan.ValidName(name) {
		t.Errorf("the host gives %q", name)
	}
	for name, valid := range map[string]bool{
		"desk": true, "rack-1.lan_2": true, strings.Repeat("x", 63): true, strings.Repeat("x", 64): false, "my desk": false, "b\u00fcro": false, "a/b": false,
	} {
		c.Name = name
		err := c.Validate()
		if valid != (err == nil) || !valid && (!errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "1 to 63 letters, digits, '-', '.' and '_'")) {
			t.Errorf("%q: %v", name, err)
		}
		if valid && c.MachineName() != name {
			t.Errorf("%q is called %q", name, c.MachineName())
		}
	}
}

// TestErrorsNameSettingsAsTheyWereWritten: by flag, or by file and key where only the file gives them.
func TestErrorsNameSettingsAsTheyWereWritten(t *testing.T) {
	file := write(t, "warmup_steps: -1\nlisten: nowhere\n")
	flags := Default()
	flags.WarmupSteps = -2
	for key, want := range map[string]string{
		"none": "config: " + file + ": warmup_steps is -1: want 0 to ", "warmup_steps": "config: --warmup-steps is -2: want 0 to ",
	} {
		if _, err := Effective(file, flags, func(k string) bool { return k == key }); !errors.Is(err, ErrInvalid) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	flags.WarmupSteps = 0
	c, err := Effective(file, flags, func(k string) bool { return k == "warmup_steps" })
	if want := file + ": listen is nowhere"; err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(c.TryListen().Error(), want) {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestWhereTheLocalNetworkReachesANode: --lan listens on every interface unless --listen says where, and refuses this machine alone.
func TestWhereTheLocalNetworkReachesANode(t *testing.T) {
	for listen, want := range map[string]string{"": AnyPort, ":4001": ":4001", "127.0.0.1:0": "", "localhost:7": ""} {
		flags := Default()
		flags.LAN, flags.Listen = true, listen
		c, err := Effective("", flags, func(key string) bool { return key == "lan" || key == "listen" && listen != "" })
		if want == "" {
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "--listen "+listen) {
				t.Errorf("%q: %v", listen, err)
			}
			continue
		}
		if err != nil || c.Listen != want {
			t.Errorf("%q: listens at %q, %v", listen, c.Listen, err)
		}
	}
}
