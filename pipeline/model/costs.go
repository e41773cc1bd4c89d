package model

import (
	"fmt"

	"pnode/kernels"
)

// LayerCost is what one layer costs for one micro-batch.
type LayerCost struct {
	// ForwardFLOPs, InputFLOPs and WeightFLOPs are the work of forward (with the loss),
	// BackwardInput and BackwardWeight.
	ForwardFLOPs, InputFLOPs, WeightFLOPs int64
	// ParamBytes is the size of the parameters; gradients and each moment add as much.
	ParamBytes int64
	// SavedBytes is what a slot keeps from forward to backward, the layer's output
	// included, its input not.
	SavedBytes int64
	// BoundaryBytes is the size of the output [B,T,C], and of its gradient, where the
	// next layer is elsewhere; 0 for the head.
	BoundaryBytes int64
}

// Costs gives every layer's cost for micro-batches of that many sequences: the op table's
// figures summed over the calls that the layers issue. It panics when the configuration
// is not valid or no stack could have such micro-batches.
func (c Config) Costs(microBatch int) []LayerCost {
	cfg := StackConfig{Model: c, End: c.Layers(), MicroBatch: microBatch, Slots: 1}
	if err := cfg.validate(); err != nil {
		panic(fmt.Sprintf("model: costs: %v", err))
	}
	s := &Stack{cfg: cfg, mem: newMemory()}
	s.build() // no device: the layers are bound to sizes only
	f := s.slots[0]
	costs := make([]LayerCost, c.Layers())
	for i, l := range f.layers {
		costs[i] = LayerCost{
			ForwardFLOPs: countFLOPs(l.forward),
			InputFLOPs:   countFLOPs(l.backwardInput),
			WeightFLOPs:  countFLOPs(l.backwardWeight),
			ParamBytes:   4 * int64(c.LayerLen(i)),
			SavedBytes:   4 * int64(f.saved[i]),
		}
		if i < c.Layers()-1 {
			costs[i].BoundaryBytes = 4 * int64(f.x[i+1].Len)
		}
	}
	costs[c.Layers()-1].ForwardFLOPs += countFLOPs(func(q issuer) { f.head.loss(q, 1) })
	return costs
}

// flopCount sums the op table's figures over calls.
type flopCount int64

func (n *flopCount) Do(c kernels.Call) { *n += flopCount(kernels.Info(c.Op).FLOPs(c)) }

func countFLOPs(issue func(issuer)) int64 {
	var n flopCount
	issue(&n)
	return int64(n)
}
