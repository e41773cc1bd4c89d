package config

import (
	"errors"
	"math"
	"strings"
	"testing"

	"pnode/planner/plan"
)

func TestValidateNamesFieldValueAndRange(t *testing.T) {
	for _, tt := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Preset = "nanno" }, "config: --preset is nanno: want one of nano, "},
		{func(c *Config) { c.SampleEvery = -1 }, "config: --sample-every is -1: want 0 to 1000000000"},
		{func(c *Config) { c.SamplePrompt = "Once" }, "config: --sample-prompt is \"Once\": want none without --sample-every N"},
		{func(c *Config) { c.SampleEvery, c.SamplePrompt = 9, strings.Repeat("a", 1025) }, "config: --sample-prompt is \"aaaa"},
		{func(c *Config) { c.SampleEvery, c.SamplePrompt = 9, "\xff" }, "config: --sample-prompt is \"\\xff\": want UTF-8 text of at most 1024 bytes"},
		{func(c *Config) { c.SampleEvery, c.KeepWhole = 9, "off" }, "config: --keep-whole is off: want on or auto with --sample-every"},
		{func(c *Config) { c.Steps = 0 }, "config: --steps is 0: want 1 to 1000000000"},
		{func(c *Config) { c.Steps = -4 }, "config: --steps is -4: want 1 to"},
		{func(c *Config) { c.Micros = 0 }, "config: --micros is 0: want 1 to"},
		{func(c *Config) { c.MicroBatch = 1 << 40 }, "config: --micro-batch is 1099511627776: want 1 to"},
		{func(c *Config) { c.LR = math.NaN() }, "config: --lr is NaN: want more than 0, up to 10"},
		{func(c *Config) { c.LR = 0 }, "config: --lr is 0: want more than 0, up to 10: with 0 nothing is learned"},
		{func(c *Config) { c.LR = 1e-4 }, "config: --min-lr is 0.0005: want 0 to 0.0001"},
		{func(c *Config) { c.DataLimit = 3 }, "config: --data-limit is 3B: want 0 for no limit, or 1KiB to 64GiB"},
		{func(c *Config) { c.Replicas = 5 }, "config: --replicas is 5: want auto, or 1 to 4"},
		{func(c *Config) { c.Schedule = "magic" }, "config: --schedule is magic: schedule: unknown schedule \"magic\": want one of gpipe, 1f1b, "},
		{func(c *Config) { c.Schedule, c.Stages = "chimera", 3 }, "config: --schedule is chimera: 3 devices: chimera: "},
		{func(c *Config) { c.SumGroups = 5 }, "config: --sum-groups is 5: want auto, or 1 to 4, the number of micro-batches (--micros)"},
		{func(c *Config) { c.SumGroups, c.Replicas = 2, 3 }, "config: --sum-groups is 2: want auto, or at least 3, the number of replicas: each takes whole groups"},
		{func(c *Config) { c.Stages = 99 }, "config: --stages is 99: want auto, or 1 to 6, the layers of nano"},
		{func(c *Config) { c.Local, c.Replicas, c.Stages = 3, 2, 2 }, "config: --local is 3: want at least 4 nodes for 2 replicas of 2 stages"},
		{func(c *Config) { c.MicroBatch, c.Stages = 4096, 2 }, "config: planner: a message is too long for a link: micro_batch is 4096: with a context of 128 and 192 channels 384.0 MiB cross between stages at once, 256.0 MiB can: want at most 2730, with more micros, or codec bf16, which halves that, or stages 1"},
		{func(c *Config) { c.Local, c.Stages = 1, 2 }, "config: --local is 1: want at least 2 nodes for 2 stages"},
		{func(c *Config) { c.Local, c.Replicas, c.Stages = 1, 1, 2 }, "config: --local is 1: want at least 2 nodes for 1 replica of 2 stages"},
		{func(c *Config) { c.Listen = "localhost:x" }, `config: --listen is localhost:x: want "host:port"`},
		{func(c *Config) { c.Listen = "my.host:4001" }, `config: --listen is my.host:4001: want "host:port", such as :4001 for every interface, 0.0.0.0:4001 for IPv4 alone, or 127.0.0.1:0, with an IP address of this machine, not a name`},
		{func(c *Config) { c.Announce = "203.0.113.7" }, `config: --announce is 203.0.113.7: "203.0.113.7": want HOST:PORT, udp/HOST:PORT, tcp/HOST:PORT or https://HOST[:PORT], such as 203.0.113.7:4001`},
		{func(c *Config) { c.Local = 65 }, "config: --local is 65: want 0 to 64"},
		{func(c *Config) { c.Emulate, c.Memory = "e.yaml", "1GB" }, "config: --memory is 1GB: want auto with --emulate"},
		{func(c *Config) { c.Devices, c.Memory = "cpu", "cuda:0=1GB" }, "config: --memory is cuda:0=1GB: want nothing about cuda:0: devices are cpu"},
		{func(c *Config) { c.Local, c.Memory = 4, "300MB" }, "config: --memory is 300MB: want 400MB or more for cpu, or fewer local nodes: 4 share it, each would get 75MB and takes 100MB at least"},
		{func(c *Config) { c.Local, c.Devices, c.Memory = 3, "cuda:0,cpu", "8GB,cuda:0=150MB" }, "config: --memory is 8GB,cuda:0=150MB: want 200MB or more for cuda:0, or fewer local nodes: 2 share it, each would get 75MB"},
		{func(c *Config) { c.Local, c.Memory = 2, "cuda:0=8GiB" }, "config: --memory is cuda:0=8GiB: want nothing about cuda:0, or devices that name it: they are auto, of which no local node gets cuda:0"},
		{func(c *Config) { c.Emulate, c.Devices = "e.yaml", "opencl:0" }, "config: --devices is opencl:0: want auto or cpu with --emulate"},
		{func(c *Config) { c.Voters = "3" }, "config: --voters is 3: want auto, owners or any"},
		{func(c *Config) { c.MinNodes = 1001 }, "config: --min-nodes is 1001: want 1 to 1000"},
		{func(c *Config) { c.Local, c.MinNodes = 3, 5 }, "config: --min-nodes is 5: want 1 to 3, the nodes that --local starts"},
		{func(c *Config) { c.Micros, c.Replicas, c.Stages = 400, 400, 3 }, "config: --replicas is 400: want fewer, or fewer stages: 400 replicas of 3 stages need 1200 devices, a run has at most 1000"},
		{func(c *Config) { c.Listen = "4001" }, `config: --listen is 4001: want "host:port"`},
		{func(c *Config) { c.Listen = ":99999" }, `config: --listen is :99999: want "host:port"`},
		{func(c *Config) { c.LogLevel = "loud" }, "config: --log-level is loud: want one of debug, info, warn, error"},
		{func(c *Config) { c.Dropout = 1 }, "config: --dropout is 1: want 0 to 0.99"},
		{func(c *Config) { c.LoRARank = 4 }, "config: --lora-rank is 4: needs --init FOLDER: adapters change the weights of a model that is there"},
		{func(c *Config) { c.LoRA = "a" }, "config: --lora is a: needs --init FOLDER"},
		{func(c *Config) { c.Preset, c.Init, c.LoRA, c.LoRARank = "", "x", "a", 4 }, "config: --lora-rank is 4: want 0: the adapters in a have their own"},
		{func(c *Config) { c.Preset, c.Init, c.LoRA, c.LoRAAlpha = "", "x", "a", 4 }, "config: --lora-alpha is 4: want 0: the adapters in a"},
		{func(c *Config) { c.Preset, c.Init, c.LoRA, c.LoRATargets = "", "x", "a", "q" }, "config: --lora-targets is q: want none: the adapters in a"},
		{func(c *Config) { c.LoRARank = -1 }, "config: --lora-rank is -1: want 0 to 4096"},
		{func(c *Config) { c.LoRAAlpha = 4 }, "config: --lora-alpha is 4: want 0 without --lora-rank"},
		{func(c *Config) { c.LoRAAlpha = math.NaN() }, "config: --lora-alpha is NaN: want 0 to"},
		{func(c *Config) { c.LoRATargets = "q_proj" }, "config: --lora-targets is q_proj: want none without --lora-rank"},
		{func(c *Config) { c.Codec = "fp4" }, "config: --codec is fp4: want one of f32, bf16, int8, int4, auto, auto:bf16, auto:int4"},
		{func(c *Config) { c.Storage = "f64" }, "config: --storage is f64: want one of auto, f32, bf16, f16"},
		{func(c *Config) { c.StochasticRounding, c.Storage = true, "f32" }, "config: --stochastic-rounding is true: want false with storage f32"},
		{func(c *Config) { c.Recompute = "all" }, "config: --recompute is all: want one of auto, none, outputs, block"},
		{func(c *Config) { c.Shard = "maybe" }, "config: --shard is maybe: want one of auto, on, off"},
		{func(c *Config) { c.Sync = "locally" }, "config: --sync is locally: want every-step, local, or local: and settings: h=50, "},
		{func(c *Config) { c.Sync = "" }, "config: --sync is : want every-step, local, or local: and settings"},
		{func(c *Config) { c.Sync = "local:k=5" }, `config: --sync is local:k=5: the setting "k=5": want h=50, codec=int8, `},
		{func(c *Config) { c.Sync = "local:codec=fp8" }, `config: --sync is local:codec=fp8: codec for outer gradients is "fp8": want one of f32, bf16, int8, int4, topk`},
		{func(c *Config) { c.Sync = "local:lr=0.7" }, "config: --sync is local:lr=0.7: want both lr and momentum, as in local:lr=0.7,momentum=0.5, or neither"},
		{func(c *Config) { c.Sync = "local:lr=20,momentum=0" }, "config: --sync is local:lr=20,momentum=0: lr of outer steps is 20, want 1e-06 to 16"},
		{func(c *Config) { c.Sync = "local:h=1" }, "config: --sync is local:h=1: want h of 2 or more steps between outer steps; every-step is better"},
		{func(c *Config) { c.Sync, c.Steps = "local:h=601", 600 }, "config: --sync is local:h=601: want h of at most 600, the run's steps (--steps): replicas would meet at the end alone"},
		{func(c *Config) { c.Sync = "local:warmup=600" }, "config: --sync is local:warmup=600: want warmup of less than 600, the run's steps (--steps), or --sync every-step"},
		{func(c *Config) { c.Sync, c.Micros = "local", 1 }, "config: --micros is 1: want 2 or more with local steps (--sync local)"},
		{func(c *Config) { c.Sync, c.Replicas = "local", 1 }, "config: --replicas is 1: want auto, or 2 or more with local steps (--sync local): one copy of the model has no other to meet"},
		{func(c *Config) { c.Sync, c.Replicas, c.Micros = "local", 65, 65 }, "config: --replicas is 65: want auto, or 2 to 64 with local steps (--sync local): each sends to all others"},
		{func(c *Config) { c.Sync, c.SumGroups = "local", 1 }, "config: --sum-groups is 1: want auto, or 2 or more with local steps (--sync local)"},
		{func(c *Config) { c.Sync, c.Shard = "local:h=5", "on" }, "config: --shard is on: want auto or off with local steps (--sync local)"},
		{func(c *Config) { c.Sync, c.Schedule = "local", "chimera" }, "config: --schedule is chimera: want auto, or a schedule of one copy of the model on each device, such as 1f1b or zb-h2, with local steps (--sync local)"},
		{func(c *Config) { c.Data = []string{""} }, `config: --data is "": want paths`},
	} {
		c := Default()
		tt.change(&c)
		err := c.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) || !errors.Is(err, ErrInvalid) {
			t.Errorf(" got %v\nwant %s", err, tt.want)
		}
		if _, err := c.RunSpec(nano(t), plan.DataSpec{}, "r"); !errors.Is(err, ErrInvalid) {
			t.Errorf("RunSpec accepts what Validate refuses: %s", tt.want)
		}
	}
}

func TestSettingsOfLocalSteps(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Sync = "local" },
		func(c *Config) { c.Sync = "local:h=600" },
		func(c *Config) { c.Sync = "local:h=2,codec=topk,warmup=99%,lr=1,momentum=0.9" },
		func(c *Config) { c.Sync, c.Shard, c.Schedule = "local", "off", "zb-h1" },
		func(c *Config) { c.Sync, c.Schedule, c.Replicas, c.SumGroups = "local:warmup=599", "elastic", 2, 2 },
		func(c *Config) { c.Sync, c.Optimizer, c.Dropout, c.UnevenShares = "local", "muon", 0.1, true },
	} {
		c := Default()
		change(&c)
		run, err := c.RunSpec(nano(t), plan.DataSpec{}, "r")
		if err != nil || !run.Train.Sync.Local || run.Train.Sync.String() != c.Sync {
			t.Errorf("%s: %v, a run with %v", c.Sync, err, run.Train.Sync)
		}
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
