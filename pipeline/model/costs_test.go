package model

import (
	"fmt"
	"reflect"
	"testing"

	"pnode/kernels/null"
)

// TestBlockFLOPs compares the counted work with the usual estimate: 2 operations for
// each parameter and token in every product, 4*D (forward) and 10*D (backward) for each
// pair of positions in attention. What is left is element-wise work.
func TestBlockFLOPs(t *testing.T) {
	tests := []struct {
		preset string
		margin float64 // element-wise work relative to the estimate
	}{{"nano", 0.06}, {"small-10m", 0.02}, {"gpt2-124m", 0.01}}
	const batch = 2
	for _, test := range tests {
		t.Run(test.preset, func(t *testing.T) {
			c, err := Preset(test.preset)
			must(t, err)
			tokens := int64(batch * c.Context)
			products := 2 * tokens * int64(12*c.Channels*c.Channels)
			pairs := int64(batch*c.Context*(c.Context+1)/2) * int64(c.Channels) // times H*D
			for layer, cost := range c.Costs(batch, StorageF32)[1 : c.Blocks+1] {
				within(t, "forward", layer, cost.ForwardFLOPs, products+4*pairs, test.margin)
				if cost.ForwardAttention < 4*pairs || cost.InputAttention < 10*pairs || cost.Lean[RecomputeBlock].RecomputeAttention != cost.ForwardAttention {
					t.Errorf("block %d: attention is %d and %d FLOPs of %d pairs, %d again", layer, cost.ForwardAttention, cost.InputAttention, pairs, cost.Lean[RecomputeBlock].RecomputeAttention)
				}
				within(t, "input", layer, cost.InputFLOPs, products+10*pairs, test.margin)
				within(t, "weight", layer, cost.WeightFLOPs, products, test.margin)
			}
		})
	}
}

func within(t *testing.T, what string, layer int, got, estimate int64, margin float64) {
	t.Helper()
	if got < estimate || float64(got) > (1+margin)*float64(estimate) {
		t.Errorf("block %d: %s is %d FLOPs, the estimate %d (+%.1f%%)", layer, what, got, estimate, 100*margin)
	}
}

// TestCostsAreWhatAStepIssues runs one micro-batch on a device that counts, for each
// level of recomputation.
func TestCostsAreWhatAStepIssues(t *testing.T) {
	for name, model := range noisy() {
		for level := range recomputeLevels {
			t.Run(fmt.Sprintf("%s recompute %v", name, level), func(t *testing.T) { checkIssued(t, model, level) })
		}
	}
}

func checkIssued(t *testing.T, model Config, level Recompute) {
	var want LayerCost
	again := int64(0)
	for _, c := range model.Costs(tinyBatch, StorageF32) {
		want.ForwardFLOPs += c.ForwardFLOPs
		want.InputFLOPs += c.InputFLOPs
		want.WeightFLOPs += c.WeightFLOPs
		want.SplitFLOPs += c.SplitFLOPs
		again += c.Lean[level].RecomputeFLOPs
	}
	device := null.New()
	s, err := NewStack(StackConfig{
		Device: device, Model: model, End: model.Layers(), MicroBatch: tinyBatch, Slots: 1, SplitBackward: true, Recompute: level.Uniform(model.Layers()),
	})
	must(t, err)
	defer s.Close()
	q, err := device.NewQueue()
	must(t, err)
	count := func(enqueue func()) int64 {
		device.Reset()
		enqueue()
		must(t, q.Sync())
		return device.Total().FLOPs
	}
	phase := func(name string, got, want int64) {
		if got != want || got == 0 {
			t.Errorf("%s issues %d FLOPs, Costs say %d", name, got, want)
		}
	}
	phase("Forward", count(func() { s.Slot(0).Forward(q, Noise{On: true}) }), want.ForwardFLOPs)
	phase("Backward", count(func() { s.Slot(0).Backward(q, 1) }), want.InputFLOPs+want.WeightFLOPs+again)
	input, weight := count(func() { s.Slot(0).BackwardInput(q, 1) }), count(func() { s.Slot(0).BackwardWeight(q, func(int) {}) })
	switch level {
	case RecomputeNothing:
		phase("BackwardInput", input, want.InputFLOPs)
		phase("BackwardWeight", weight, want.WeightFLOPs+want.SplitFLOPs)
	case RecomputeOutputs:
		phase("BackwardInput", input, want.InputFLOPs)
		phase("BackwardWeight", weight, want.WeightFLOPs+want.SplitFLOPs+again)
	case RecomputeBlock: // in both parts
		phase("BackwardInput", input, want.InputFLOPs+again)
		phase("BackwardWeight", weight, want.WeightFLOPs+want.SplitFLOPs+again)
	}
}

// TestCostBytes checks sizes against what a stack allocates.
func TestCostBytes(t *testing.T) {
	costs := tiny.Costs(tinyBatch, StorageF32)
	rows := int64(tinyBatch * tiny.Context)
	stream := 4 * rows * int64(tiny.Channels)
	for layer, c := range costs {
		want := stream
		if layer == tiny.Layers()-1 {
			want = 0
		}
		if c.BoundaryBytes != want || c.ParamBytes != 4*int64(tiny.LayerLen(layer)) {
			t.Errorf("layer %d: boundary %d bytes (want %d), parameters %d", layer, c.BoundaryBytes, want, c.ParamBytes)
		}
	}
	peak := func(first, end, slots int) int64 {
		device := null.New()
		s, err := NewStack(StackConfig{Device: device, Model: tiny, First: first, End: end, MicroBatch: tinyBatch, Slots: slots})
		must(t, err)
		defer s.Close()
		return device.PeakBytes()
	}
	// One more slot of a middle stage: its layers' activations, its input, and the
	// gradients of both boundaries.
	if got, want := peak(1, 3, 2)-peak(1, 3, 1), costs[1].SavedBytes+costs[2].SavedBytes+3*stream; got != want {
		t.Errorf("a slot of two blocks takes %d bytes, Costs say %d", got, want)
	}
	if got, want := peak(0, 4, 2)-peak(0, 4, 1), sumSaved(costs); got != want {
		t.Errorf("a slot of the whole model takes %d bytes, Costs say %d", got, want)
	}
}

// TestMemoryIsWhatAStackAllocates compares prediction and allocation for stages of every
// kind.
func TestMemoryIsWhatAStackAllocates(t *testing.T) {
	t.Parallel()
	for _, preset := range []string{"nano", "gpt2-124m", "llama-160m"} {
		m, err := Preset(preset)
		must(t, err)
		m.ResidualDropout, m.Window = 0.1, 100
		for _, cut := range [][2]int{{0, m.Layers()}, {0, 2}, {1, 3}, {2, m.Layers()}} {
			for _, slots := range []int{1, 3} {
				for level := range recomputeLevels {
					for _, split := range []bool{false, true} {
						for storage := range storages {
							checkMemory(t, StackConfig{
								Model: m, First: cut[0], End: cut[1], MicroBatch: 2, Slots: slots, SplitBackward: split,
								Recompute: level.Uniform(cut[1] - cut[0]), Moments: 2, Storage: storage,
							})
						}
					}
				}
			}
		}
	}
}

// TestPassBytes holds what the planner adds for a stage of the whole model, whatever its
// slots, to what the stage allocates.
func TestPassBytes(t *testing.T) {
	for name, c := range noisy() {
		widest := int64(0)
		for _, cost := range c.Costs(tinyBatch, StorageF32) {
			widest = max(widest, cost.PassBytes)
		}
		m, err := StackConfig{Model: c, End: c.Layers(), MicroBatch: tinyBatch, Slots: 3}.Memory()
		must(t, err)
		stream := int64(4 * tinyBatch * c.Context * c.Channels)
		if m.Layer != widest || m.Deltas != 2*stream {
			t.Errorf("%s: a stage shares %d and %d bytes, Costs say %d and two streams of %d", name, m.Layer, m.Deltas, widest, stream)
		}
	}
}

func checkMemory(t *testing.T, cfg StackConfig) {
	t.Helper()
	device := null.New()
	cfg.Device = device
	want, err := cfg.Memory()
	must(t, err)
	s, err := NewStack(cfg)
	must(t, err)
	defer s.Close()
	if got := device.PeakBytes(); got != want.Total() || want.Params == 0 || want.Moments != 2*want.Params {
		t.Errorf("layers [%d,%d) with %d slots, recompute %v: %d bytes, predicted %+v", cfg.First, cfg.End, cfg.Slots, cfg.Recompute[0], got, want)
	}
}

// TestLeanCosts checks that each level keeps what Costs say, and less than the one before.
func TestLeanCosts(t *testing.T) {
	costs := tiny.Costs(tinyBatch, StorageF32)
	saved := func(level Recompute, slots int) int64 {
		m, err := StackConfig{Model: tiny, First: 1, End: 3, MicroBatch: tinyBatch, Slots: slots, Recompute: level.Uniform(2)}.Memory()
		must(t, err)
		return m.Saved
	}
	rows := int64(tinyBatch * tiny.Context)
	stream := 4 * rows * int64(tiny.Channels)
	for level := range recomputeLevels {
		// A slot keeps its input besides what its blocks keep.
		want := stream + costs[1].Lean[level].SavedBytes + costs[2].Lean[level].SavedBytes
		if got := saved(level, 3) - saved(level, 2); got != want {
			t.Errorf("recompute %v: a slot keeps %d bytes, Costs say %d", level, got, want)
		}
	}
	block := costs[1].Lean
	if keep := block[RecomputeNothing]; keep.RecomputeFLOPs != 0 || keep.SavedBytes != costs[1].SavedBytes {
		t.Errorf("nothing recomputed costs %+v", keep)
	}
	if dropped := block[RecomputeNothing].SavedBytes - block[RecomputeOutputs].SavedBytes; dropped != 6*stream {
		t.Errorf("the outputs of norms and activation take %d bytes, want 6 streams of %d", dropped, stream)
	}
	if got := block[RecomputeBlock].SavedBytes; got != stream {
		t.Errorf("a block computed again keeps %d bytes, want its output's %d", got, stream)
	}
	if few, all := block[RecomputeOutputs].RecomputeFLOPs, block[RecomputeBlock].RecomputeFLOPs; few <= 0 || all <= few || all >= costs[1].ForwardFLOPs {
		t.Errorf("recomputation takes %d and %d of %d FLOPs", few, all, costs[1].ForwardFLOPs)
	}
}

// TestCostsAtALevel compares what one more slot of a whole model and its passes take.
func TestCostsAtALevel(t *testing.T) {
	for level := range recomputeLevels {
		memory := func(slots int) Memory {
			m, err := StackConfig{Model: tiny, End: tiny.Layers(), MicroBatch: tinyBatch, Slots: slots, Recompute: level.Uniform(tiny.Layers())}.Memory()
			must(t, err)
			return m
		}
		pass := int64(0)
		costs := tiny.Costs(tinyBatch, StorageF32)
		for i, c := range costs {
			costs[i] = c.At(level)
			pass = max(pass, costs[i].PassBytes)
			if got := costs[i].InputFLOPs - c.InputFLOPs; got != c.Lean[level].RecomputeFLOPs {
				t.Errorf("recompute %v: layer %d computes %d FLOPs again, want %d", level, i, got, c.Lean[level].RecomputeFLOPs)
			}
		}
		if got, want := memory(2).Total()-memory(1).Total(), sumSaved(costs); got != want {
			t.Errorf("recompute %v: a slot takes %d bytes, costs say %d", level, got, want)
		}
		if got := memory(1).Layer; got != pass {
			t.Errorf("recompute %v: passes take %d bytes, costs say %d", level, got, pass)
		}
	}
}

func sumSaved(costs []LayerCost) int64 {
	n := int64(0)
	for _, c := range costs {
		n += c.SavedBytes
	}
	return n
}

// TestCostsOfBlocks compares the costs that all blocks get with those of each block by itself.
func TestCostsOfBlocks(t *testing.T) {
	for name, c := range shadowModels() {
		c.Blocks = 4
		for _, storage := range []Storage{StorageF32, StorageBF16, StorageF16} {
			if got, want := c.Costs(tinyBatch, storage), c.costs(tinyBatch, storage); !reflect.DeepEqual(got, want) {
				t.Errorf("%s in %v: costs are %+v, want %+v", name, storage, got, want)
			}
		}
	}
}

func TestCostsNeedAValidShape(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Costs of micro-batches without sequences did not panic")
		}
	}()
	tiny.Costs(0, StorageF32)
}
