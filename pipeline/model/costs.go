package model

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/kernels"
)

// LayerCost is the cost of one layer for one micro-batch.
type LayerCost struct {
	// ForwardFLOPs, InputFLOPs and WeightFLOPs are the work of Forward, of BackwardInputSegment
	// for all segments, and of what Backward does beyond that. The losses belong to the input pass.
	ForwardFLOPs, InputFLOPs, WeightFLOPs int64
	// ForwardAttention and InputAttention are the parts of ForwardFLOPs and InputFLOPs that
	// attention does, which no device does at the speed of its products.
	ForwardAttention, InputAttention int64
	// ForwardElementwise, InputElementwise and WeightElementwise are the parts of them that neither products nor
	// attention do: devices are bound by memory there, and take no time for operations.
	ForwardElementwise, InputElementwise, WeightElementwise int64
	// ForwardCalls, InputCalls and WeightCalls count the kernel calls of these passes: each takes a device some time besides its operations.
	ForwardCalls, InputCalls, WeightCalls int64
	// ForwardWorks, InputWorks, WeightWorks and SplitWorks are the calls of these passes, and of what SplitFLOPs counts, by
	// work and size. Where a pass makes calls in place of another's they are less than none.
	ForwardWorks, InputWorks, WeightWorks, SplitWorks Works
	// SplitFLOPs is what BackwardWeight does again after the input pass: logits of the head. SplitCalls counts its calls.
	SplitFLOPs, SplitCalls int64
	// UpdateFLOPs are the products of an update, once a step. Config.Costs, which knows no optimizer, has none.
	UpdateFLOPs int64
	// ParamBytes is the size of the parameters, FrozenBytes of those that are not trained;
	// gradients and each moment add as much as is trained.
	ParamBytes, FrozenBytes int64
	// OneMomentBytes of the trained parameters have one moment. Config.Costs, which knows no optimizer, has none.
	OneMomentBytes int64
	// CopyBytes is the size of the parameters' copy in halves, where the storage has one.
	CopyBytes int64
	// SavedBytes is what a slot keeps from forward to backward, the layer's output
	// included, its input not, when nothing is recomputed.
	SavedBytes int64
	// BoundaryBytes is the size of the output [B,T,C], and of its gradient, where the
	// next layer is elsewhere; 0 for the head.
	BoundaryBytes int64
	// PassBytes is what the layer's passes need for themselves, at one time: gradients
	// within the layer, a chunk of logits. The layers of a stage share it.
	PassBytes int64
	// PassHalfBytes of them are halves; layers share them apart from the others.
	PassHalfBytes int64
	// TableBytes is what depends on positions alone; the layers of a stage share it too.
	TableBytes int64
	// Lean is the same for each level of recomputation, RecomputeNothing first.
	Lean [recomputeLevels]LeanCost
}

// LeanCost is the cost of a level of recomputation for a layer, and the bytes that it keeps.
type LeanCost struct {
	SavedBytes     int64 // in place of LayerCost's
	PassBytes      int64 // in place of LayerCost's
	PassHalfBytes  int64 // in place of LayerCost's
	RecomputeFLOPs int64 // of Backward, beyond LayerCost's
	// RecomputeAttention is the part of RecomputeFLOPs that attention does, RecomputeElementwise what neither products
	// nor attention do.
	RecomputeAttention, RecomputeElementwise int64
	RecomputeCalls                           int64 // kernel calls of it
	RecomputeWorks                           Works // and these by work and size
}

// Works count calls of works and sizes, in the order of both, each once.
type Works []WorkCount

// WorkCount has so many calls of a work and a size.
type WorkCount struct {
	Work        kernels.Work
	Size, Count int64
}

// plus returns the works with others so many times.
func (all Works) plus(others Works, times int64) (sum Works) {
	sum = slices.Clone(all)
	for _, o := range others {
		o.Count *= times
		sum = append(sum, o)
	}
	slices.SortFunc(sum, func(a, b WorkCount) int { return cmp.Or(cmp.Compare(a.Work, b.Work), cmp.Compare(a.Size, b.Size)) })
	out := sum[:0]
	for _, w := range sum {
		if n := len(out); n > 0 && out[n-1].Work == w.Work && out[n-1].Size == w.Size {
			out[n-1].Count += w.Count
		} else {
			out = append(out, w)
		}
	}
	return slices.DeleteFunc(out, func(w WorkCount) bool { return w.Count == 0 })
}

// At is the cost under a level of recomputation. What is computed again counts as part of
// the input pass, where the next stage waits for it.
func (c LayerCost) At(level Recompute) LayerCost {
	lean := c.Lean[level]
	c.SavedBytes, c.PassBytes, c.PassHalfBytes = lean.SavedBytes, lean.PassBytes, lean.PassHalfBytes
	c.InputFLOPs += lean.RecomputeFLOPs
	c.InputAttention += lean.RecomputeAttention
	c.InputElementwise += lean.RecomputeElementwise
	c.InputCalls += lean.RecomputeCalls
	c.InputWorks = c.InputWorks.plus(lean.RecomputeWorks, 1)
	return c
}

// Costs gives every layer's cost for micro-batches of that many sequences: the op table's
// figures summed over the calls that the layers issue; both halves cost the same. It panics when the
// configuration is not valid or no stack could have such micro-batches.
func (c Config) Costs(microBatch int, storage Storage) []LayerCost {
	if err := (StackConfig{Model: c, End: c.Layers(), MicroBatch: microBatch, Slots: 1, Storage: storage}).validate(); err != nil {
		panic(fmt.Sprintf("model: costs: %v", err))
	}
	one := c
	one.Blocks = 1 // all blocks are alike
	costs := one.costs(microBatch, storage)
	all := append(make([]LayerCost, 0, c.Layers()), costs[0])
	for range c.Blocks {
		all = append(all, costs[1])
	}
	return append(all, costs[2])
}

// costs returns the same, for which it looks at each layer.
func (c Config) costs(microBatch int, storage Storage) []LayerCost {
	costs := make([]LayerCost, c.Layers())
	for level := range recomputeLevels {
		cfg := StackConfig{Model: c, End: c.Layers(), MicroBatch: microBatch, Slots: 1, Storage: storage}
		cfg.Recompute = level.Uniform(c.Layers())
		if err := cfg.validate(); err != nil {
			panic(fmt.Sprintf("model: costs: %v", err))
		}
		stack := measured(cfg)
		f := stack.slots[0]
		f.noise.On = true
		for i, l := range f.layers {
			if level == RecomputeNothing {
				forward, whole := countFLOPs(func(q issuer) { l.forward(q, stack.all) }), countFLOPs(l.backward)
				input := countFLOPs(func(q issuer) { l.backwardInput(q, stack.all) })
				split := countFLOPs(l.backwardWeight)
				costs[i] = LayerCost{
					ForwardFLOPs: forward.all, InputFLOPs: input.all, WeightFLOPs: whole.all - input.all,
					ForwardAttention: forward.attention, InputAttention: input.attention,
					ForwardElementwise: forward.elementwise, InputElementwise: input.elementwise, WeightElementwise: whole.elementwise - input.elementwise,
					ForwardCalls: forward.calls, InputCalls: input.calls, WeightCalls: whole.calls - input.calls,
					SplitFLOPs: input.all + split.all - whole.all, SplitCalls: input.calls + split.calls - whole.calls,
					ForwardWorks: forward.works, InputWorks: input.works, WeightWorks: whole.works.plus(input.works, -1),
					SplitWorks: input.works.plus(split.works, 1).plus(whole.works, -1),
				}
				costs[i].ParamBytes, costs[i].FrozenBytes = 4*int64(c.LayerLen(i)), 4*int64(c.FrozenLen(i))
				costs[i].SavedBytes, costs[i].PassBytes, costs[i].PassHalfBytes = f.sizes[i].saved, f.sizes[i].pass, f.sizes[i].half
				costs[i].BoundaryBytes, costs[i].TableBytes = 4*int64(f.x[i+1].Len), stack.mem.tables.sizeBytes()
				if storage != StorageF32 {
					costs[i].CopyBytes = 2 * int64(c.LayerLen(i))
				}
			}
			backward := countFLOPs(l.backward)
			costs[i].Lean[level] = LeanCost{
				SavedBytes:         f.sizes[i].saved,
				PassBytes:          f.sizes[i].pass,
				PassHalfBytes:      f.sizes[i].half,
				RecomputeFLOPs:     backward.all - costs[i].InputFLOPs - costs[i].WeightFLOPs,
				RecomputeAttention: backward.attention - costs[i].InputAttention,

				RecomputeElementwise: backward.elementwise - costs[i].InputElementwise - costs[i].WeightElementwise,
				RecomputeCalls:       backward.calls - costs[i].InputCalls - costs[i].WeightCalls,
				RecomputeWorks:       backward.works.plus(costs[i].InputWorks, -1).plus(costs[i].WeightWorks, -1),
			}
		}
	}
	return costs
}

// flopCount sums the op table's figures over calls: of all ops, of attention alone, and of ops that are bound by memory. It counts the calls.
type flopCount struct {
	all, attention, elementwise, calls int64

	works Works
}

func (n *flopCount) Do(c kernels.Call) {
	info := kernels.Info(c.Op)
	flops := info.FLOPs(c)
	n.all += flops
	n.calls++
	work, size, count := c.Work()
	n.works = append(n.works, WorkCount{work, size, count})
	switch info.Class {
	case kernels.ClassMatMul:
	case kernels.ClassAttention:
		n.attention += flops
	default:
		n.elementwise += flops
	}
}

func countFLOPs(issue func(issuer)) (n flopCount) {
	issue(&n)
	n.works = n.works.plus(nil, 0)
	return n
}
