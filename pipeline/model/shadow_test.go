package model

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/kernels/null"
)

// shadows are the stacks' shadows, on the same queue.
func (r *rig) shadows() *rig {
	r.t.Helper()
	other := *r
	other.stacks = nil
	for _, s := range r.stacks {
		t, err := s.Shadow()
		must(r.t, err)
		must(r.t, t.Prepare(r.queue))
		other.stacks = append(other.stacks, t)
	}
	return &other
}

// evaluateDocuments is evaluate where a second document begins within each row.
func (r *rig) evaluateDocuments(slot, micro int) []float32 {
	starts := make([]int32, r.batch*r.model.Context)
	for i := range starts {
		if i%r.model.Context >= documentAt {
			starts[i] = documentAt
		}
	}
	for _, s := range r.stacks {
		if s.Masked() {
			s.Slot(slot).SetDocuments(r.queue, starts)
		}
	}
	return r.evaluate(slot, micro)
}

// shadowModels are of every family, with windows, adapters and dropout.
func shadowModels() map[string]Config {
	models := documentModels()
	maps.Copy(models, map[string]Config{
		"adapters":      adapted(tinyLlama, LoRA{Rank: 3, Alpha: 6, Targets: "q_proj,v_proj,up_proj,down_proj,lm_head"}),
		"gpt2 adapters": adapted(tiny, LoRA{Rank: 4, Alpha: 2, Targets: "c_fc,attn.c_proj"}),
	})
	noisy := tiny
	noisy.EmbedDropout, noisy.ResidualDropout = 0.25, 0.125
	models["dropout"] = noisy
	return models
}

// TestShadowsComputeWhatFloatsDo: the losses of shadows are those of stacks in float32 to the bit,
// and training between which they are computed goes as without them.
func TestShadowsComputeWhatFloatsDo(t *testing.T) {
	t.Parallel()
	for name, model := range shadowModels() {
		for i, mask := range []bool{false, true} {
			want := newRig(t, rigConfig{model: model, batch: tinyBatch, mask: mask}).load().evaluateDocuments(0, 5)
			for k, cuts := range [][]int{nil, {1, 2}, {2, model.Layers() - 1}} {
				for level := range recomputeLevels {
					for m, split := range []bool{false, true} {
						if !turn(i+k+m+int(level), 3) {
							continue
						}
						t.Run(fmt.Sprintf("%s mask %v cuts %v recompute %v split %v", name, mask, cuts, level, split), func(t *testing.T) {
							c := rigConfig{model: model, batch: tinyBatch, cuts: cuts, split: split, level: level, mask: mask, storage: StorageBF16, slots: 2, ahead: 1}
							checkShadows(t, c, want)
						})
					}
				}
			}
		}
	}
}

// checkShadows wants losses of the shadows of stacks, before they train and after, and that they
// change nothing about training.
func checkShadows(t *testing.T, c rigConfig, want []float32) {
	t.Helper()
	alone, r := newRig(t, c).load(), newRig(t, c).load()
	alone.noise, r.noise = Noise{On: true, Seed: 3}, Noise{On: true, Seed: 3}
	still := r.shadows()
	still.noise = Noise{}
	evaluate := func() {
		got := still.evaluateDocuments(0, 5)
		sameBits(t, "losses in float32", got, want)
	}
	evaluate()
	for shift := range int32(2) {
		wantLosses, wantGrads := alone.runDocuments(passOf(c.split), shift)
		losses, grads := r.runDocuments(passOf(c.split), shift)
		sameBits(t, "training losses", losses, wantLosses)
		for layer := range grads {
			sameBits(t, "gradients", grads[layer], wantGrads[layer])
		}
		evaluate()
	}
	if slices.Equal(r.evaluateDocuments(1, 5), want) {
		t.Error("BF16 storage changes nothing")
	}
}

// TestShadowsHaveRoom: what a stack with BF16 storage has between passes is enough for its layers in
// float32, in any cut, with any passes and levels, of any family.
func TestShadowsHaveRoom(t *testing.T) {
	models := shadowModels()
	for _, name := range PresetNames() {
		m, err := Preset(name)
		must(t, err)
		models[name] = m
	}
	wide := tinyLlama // queries wider than anything else
	wide.HeadDim, wide.MLP, wide.KVHeads = 64, 16, 1
	models["wide"] = wide
	for name, m := range models {
		for _, edges := range [][2]int{{0, 1}, {0, 2}, {1, 2}, {0, m.Layers()}, {1, m.Layers() - 1}, {m.Layers() - 2, m.Layers()}, {m.Layers() - 1, m.Layers()}} {
			for level := range recomputeLevels {
				for _, split := range []bool{false, true} {
					for _, mask := range []bool{false, true} {
						n := edges[1] - edges[0]
						cfg := StackConfig{
							Model: m, First: edges[0], End: edges[1], MicroBatch: 1, Slots: 1, SplitBackward: split, Recompute: level.Uniform(n),
							Ahead: n / 2, Moments: 2, Storage: StorageBF16, DocumentMask: mask,
						}
						must(t, cfg.validate())
						if _, err := measured(cfg).Shadow(); err != nil {
							t.Errorf("%s, layers %v, %v, split %v, mask %v: %v", name, edges, level, split, mask, err)
						}
					}
				}
			}
		}
	}
}

// portioned is a device whose buffers have a largest size.
type portioned struct {
	limited
	most int64
}

func (d *portioned) MaxBufferBytes() int64 { return d.most }

// TestShadowsTakeNoMemory, also of a device that gives it in portions, and follow a new shape.
func TestShadowsTakeNoMemory(t *testing.T) {
	for _, portion := range []int64{math.MaxInt32, 1 << 13} {
		device := &portioned{limited{Device: null.New()}, portion}
		s, err := NewStack(StackConfig{Device: device, Model: tinyLlama, End: tinyLlama.Layers(), MicroBatch: tinyBatch, Slots: 2, Moments: 2, Storage: StorageBF16})
		must(t, err)
		defer s.Close()
		for range 2 {
			before := device.live
			shadow, err := s.Shadow()
			must(t, err)
			if device.live != before || shadow == s {
				t.Errorf("a shadow of portions of %d bytes takes %d buffers", portion, device.live-before)
			}
			must(t, s.Resize(Passes{Slots: 1, Split: true}))
		}
	}
	floats, err := NewStack(StackConfig{Device: null.New(), Model: tiny, End: tiny.Layers(), MicroBatch: tinyBatch, Slots: 1})
	must(t, err)
	defer floats.Close()
	if shadow, err := floats.Shadow(); shadow != floats || err != nil {
		t.Errorf("a stack in float32 has another shadow: %v", err)
	}
}

// TestAShadowWithoutRoomIsRefused: the rooms that there are may be too small one by one.
func TestAShadowWithoutRoomIsRefused(t *testing.T) {
	s := measured(StackConfig{Model: tiny, First: 1, End: 2, MicroBatch: tinyBatch, Slots: 1, Storage: StorageBF16})
	for i := range s.mem.layer.regions {
		s.mem.layer.regions[i].peak = 8
	}
	if _, err := s.Shadow(); !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Errorf("got %v", err)
	}
}
