package model

import (
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
			for layer, cost := range c.Costs(batch)[1 : c.Blocks+1] {
				within(t, "forward", layer, cost.ForwardFLOPs, products+4*pairs, test.margin)
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

// TestCostsAreWhatAStepIssues runs one micro-batch on a device that counts.
func TestCostsAreWhatAStepIssues(t *testing.T) {
	var want LayerCost
	for _, c := range tiny.Costs(tinyBatch) {
		want.ForwardFLOPs += c.ForwardFLOPs
		want.InputFLOPs += c.InputFLOPs
		want.WeightFLOPs += c.WeightFLOPs
	}
	device := null.New()
	s, err := NewStack(StackConfig{Device: device, Model: tiny, End: tiny.Layers(), MicroBatch: tinyBatch, Slots: 1, SplitBackward: true})
	must(t, err)
	defer s.Close()
	q, err := device.NewQueue()
	must(t, err)
	phase := func(name string, want int64, enqueue func()) {
		device.Reset()
		enqueue()
		must(t, q.Sync())
		if got := device.Total().FLOPs; got != want || got == 0 {
			t.Errorf("%s issues %d FLOPs, Costs say %d", name, got, want)
		}
	}
	phase("Forward", want.ForwardFLOPs, func() { s.Forward(q, 0, 1) })
	phase("BackwardInput", want.InputFLOPs, func() { s.BackwardInput(q, 0) })
	phase("BackwardWeight", want.WeightFLOPs, func() { s.BackwardWeight(q, 0) })
	phase("Backward", want.InputFLOPs+want.WeightFLOPs, func() { s.Backward(q, 0) })
}

// TestCostBytes checks sizes against what a stack allocates.
func TestCostBytes(t *testing.T) {
	costs := tiny.Costs(tinyBatch)
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

func sumSaved(costs []LayerCost) int64 {
	n := int64(0)
	for _, c := range costs {
		n += c.SavedBytes
	}
	return n
}

func TestCostsNeedAValidShape(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("Costs of micro-batches without sequences did not panic")
		}
	}()
	tiny.Costs(0)
}
