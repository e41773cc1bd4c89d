package model

import (
	"errors"
	"strings"
	"testing"

	"pnode/kernels/null"
)

func adapted(c Config, l LoRA) Config {
	c.LoRA = l
	return c
}

// TestMergedModelIsTheAdapted compares the logits of a model with adapters with those of
// the base model after the merge.
func TestMergedModelIsTheAdapted(t *testing.T) {
	for name, model := range map[string]Config{
		"llama": adapted(tinyLlama, LoRA{Rank: 3, Alpha: 6, Targets: "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"}),
		"head":  adapted(tinyLlama, LoRA{Rank: 2, Alpha: 3, Targets: "lm_head,layers.1.self_attn.q_proj"}),
		"gpt2":  adapted(tiny, LoRA{Rank: 4, Alpha: 2, Targets: "c_fc,attn.c_proj"}),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, rigConfig{model: model, batch: tinyBatch}).load()
			r.forward(0, 0)
			got := r.logits(0)
			merged := newRig(t, rigConfig{model: model.Base(), batch: tinyBatch})
			plain := newRig(t, rigConfig{model: model.Base(), batch: tinyBatch})
			for l := range model.Layers() {
				params := referenceParams(model, l)
				merged.write(merged.first().Params(l), model.Merge(l, params))
				plain.write(plain.first().Params(l), params[:model.FrozenLen(l)])
			}
			merged.forward(0, 0)
			plain.forward(0, 0)
			want, without, apart := merged.logits(0), plain.logits(0), 0.0
			for i := range want {
				near(t, "logit", float64(got[i]), float64(want[i]), 2e-5)
				apart += float64(want[i]-without[i]) * float64(want[i]-without[i])
			}
			if apart < 1e-3 {
				t.Error("the adapters change nothing")
			}
		})
	}
}

// TestInitialAdaptersChangeNothing compares a new model with adapters with the base.
func TestInitialAdaptersChangeNothing(t *testing.T) {
	model := adapted(tinyLlama, LoRA{Rank: 3, Alpha: 6, Targets: "q_proj,down_proj"})
	logits := func(c Config) []float32 {
		r := newRig(t, rigConfig{model: c, batch: tinyBatch})
		for l := range c.Layers() {
			r.write(r.first().Params(l), initLayer(c, l, 4))
		}
		r.forward(0, 0)
		return r.logits(0)
	}
	sameBits(t, "logits", logits(model), logits(model.Base()))
	a, _ := tensorNamed(model.LayerTensors(1), "layers.0.self_attn.q_proj.lora_A.weight")
	near(t, "deviation of A", squares(a.of(initLayer(model, 1, 4)))/float64(a.Len()), 1./(3*24), 0.006)
}

// TestFrozenTensorsTakeNoMemory holds gradients and moments to the adapters' size, and
// the weight pass to less work than the base's.
func TestFrozenTensorsTakeNoMemory(t *testing.T) {
	model, err := Preset("llama-160m")
	must(t, err)
	base, err := StackConfig{Model: model, End: model.Layers(), MicroBatch: 1, Slots: 1, Moments: 2}.Memory()
	must(t, err)
	model.LoRA = LoRA{Rank: 8, Alpha: 16, Targets: "q_proj,v_proj"}
	m, err := StackConfig{Model: model, End: model.Layers(), MicroBatch: 1, Slots: 1, Moments: 2}.Memory()
	must(t, err)
	adapters := int64(4 * 12 * 2 * 8 * (768 + 768)) // blocks, targets, rank, in + out
	if m.Grads != adapters || m.Moments != 2*adapters || m.Params != base.Params+adapters {
		t.Errorf("adapters of %d bytes take %+v, the base %+v", adapters, m, base)
	}
	costs, full := model.Costs(1, StorageF32), model.Base().Costs(1, StorageF32)
	for l, c := range costs {
		if c.WeightFLOPs*10 > full[l].WeightFLOPs || c.ParamBytes-c.FrozenBytes != 4*int64(model.TrainedLen(l)) {
			t.Errorf("layer %d: %+v, the base %+v", l, c, full[l])
		}
	}
	for _, layers := range [][2]int{{0, 1}, {0, model.Layers()}, {1, 3}} {
		for level := range recomputeLevels {
			device := null.New()
			cfg := StackConfig{Device: device, Model: model, First: layers[0], End: layers[1], MicroBatch: 1, Slots: 2, Moments: 2, Recompute: level.Uniform(layers[1] - layers[0])}
			want, err := cfg.Memory()
			must(t, err)
			s, err := NewStack(cfg)
			must(t, err)
			q, err := device.NewQueue()
			must(t, err)
			s.ZeroGrads(q)
			must(t, q.Sync())
			if got := device.PeakBytes(); got != want.Total() {
				t.Errorf("layers %v: %d bytes, predicted %d", layers, got, want.Total())
			}
			s.Close()
		}
	}
}

func TestLoRAIsChecked(t *testing.T) {
	good := LoRA{Rank: 2, Alpha: 4, Targets: "q_proj,v_proj"}
	must(t, adapted(tinyLlama, good).Validate())
	for want, change := range map[string]func(*LoRA){
		"lora_rank is 0":                        func(l *LoRA) { l.Rank = 0 },
		"lora_rank is 9999":                     func(l *LoRA) { l.Rank = 9999 },
		"lora_alpha is 0":                       func(l *LoRA) { l.Alpha = 0 },
		`lora_targets has "": take names of`:    func(l *LoRA) { l.Targets = "" },
		`lora_targets has "c_attn": take`:       func(l *LoRA) { l.Targets = "q_proj,c_attn" },
		"down_proj, gate_proj, k_proj, lm_head": func(l *LoRA) { l.Targets = "embed_tokens" },
		`lora_targets has "proj": take`:         func(l *LoRA) { l.Targets = "proj" },
		`lora_targets has "layers.9.self_attn`:  func(l *LoRA) { l.Targets = "layers.9.self_attn.q_proj" },
	} {
		l := good
		change(&l)
		if err := adapted(tinyLlama, l).Validate(); !errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	err := adapted(tiny, LoRA{Rank: 2, Alpha: 4, Targets: "lm_head"}).Validate()
	if !errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), "c_attn, c_fc, c_proj") {
		t.Errorf("adapters of a tied head: %v", err)
	}
	_, err = NewDecoder(DecoderConfig{Model: adapted(tinyLlama, good), Device: null.New()})
	if !errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), "merge") {
		t.Errorf("a decoder of adapters: %v", err)
	}
}

// headAdapted has adapters in one block alone, and of the head.
var headAdapted = adapted(tinyLlama, LoRA{Rank: 3, Alpha: 6, Targets: "lm_head,layers.1.self_attn.v_proj"})

func TestAdaptersOfTheHead(t *testing.T) {
	if n := headAdapted.TrainedLen(1); n != 0 {
		t.Errorf("block 0 trains %d parameters", n)
	}
	t.Run("gradients", func(t *testing.T) { checkGradients(t, headAdapted, Noise{}) })
	t.Run("cuts", func(t *testing.T) { checkCuts(t, headAdapted) })
	t.Run("chunks", func(t *testing.T) { checkChunks(t, headAdapted) })
}
