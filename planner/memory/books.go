package memory

import (
	"errors"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// ErrNoHalfCosts: a stage should store halves, and nobody reckoned what that takes.
var ErrNoHalfCosts = errors.New("costs in halves are missing")

const (
	// trainingBytes is what a parameter's four bytes take in training: parameter, gradient
	// and AdamW's two moments, all float32.
	trainingBytes = 4
	// alignedMoments is what the tensors of a layer's state may take beyond their sizes.
	alignedMoments = 64 * plan.MomentVectors
)

// Model is what a model's layers take on their own, and how they are trained.
type Model struct {
	// Costs are by layer those of one micro-batch in float32 storage, HalfCosts in BF16 or F16
	// storage, which cost the same; nil where no stage has either.
	Costs, HalfCosts []model.LayerCost
	// Level is what all layers compute again where that is Fixed; else each stage chooses.
	Level model.Recompute
	Fixed bool
	// Tied is how many parameters both ends of the model share, TiedGrad those that train.
	Tied, TiedGrad int
	// MaskBytes say where the documents of a micro-batch begin; 0 where nobody asks.
	MaskBytes int64
	// NodeBytes is what a node's process takes besides its stages.
	NodeBytes int64
}

// Parts is whose optimizer state replicas hold in parts; the zero value is nobody's.
type Parts struct {
	Replicas int
	Layers   plan.LayerRanges
}

// of is into how many parts the state of a layer is cut.
func (p Parts) of(layer int) int {
	if p.Layers.Contains(layer) {
		return p.Replicas
	}
	return 1
}

// Books are a model's.
type Books struct {
	model Model
	parts Parts
	// params and moments are prefixes in bytes.
	params, moments []int64
	activation      int64
	ledgers         []*Ledger // by storage, nil where nobody has opened it
}

// New opens the books of a model that has nothing in parts.
func New(m Model) *Books {
	b := &Books{model: m, params: make([]int64, len(m.Costs)+1), ledgers: make([]*Ledger, len(model.StorageNames()))}
	for l, k := range m.Costs {
		b.params[l+1] = b.params[l] + k.ParamBytes
		b.activation = max(b.activation, k.BoundaryBytes)
	}
	b.sumMoments()
	return b
}

// InParts are the books of the same model with other parts.
func (b *Books) InParts(p Parts) *Books {
	out := *b
	out.parts = p
	out.sumMoments()
	out.ledgers = make([]*Ledger, len(b.ledgers))
	for s, l := range b.ledgers {
		if l != nil {
			other := *l
			other.books = &out
			other.sumFixed()
			out.ledgers[s] = &other
		}
	}
	return &out
}

// Parts are the layers whose optimizer state is in parts.
func (b *Books) Parts() Parts { return b.parts }

// Layers is how many the model has.
func (b *Books) Layers() int { return len(b.model.Costs) }

// All is the range of all layers.
func (b *Books) All() plan.LayerRanges { return plan.LayerRanges{{First: 0, End: b.Layers()}} }

// Params are the bytes of the parameters of the layers [first,end).
func (b *Books) Params(first, end int) int64 { return b.params[end] - b.params[first] }

// Boundary is the size of what a layer hands on for a micro-batch, in float32.
func (b *Books) Boundary(layer int) int64 { return b.model.Costs[layer].BoundaryBytes }

// Activation is the largest boundary: what crosses between stages for a micro-batch, one way.
func (b *Books) Activation() int64 { return b.activation }

// Slot is what each micro-batch in flight takes, whatever the layers: the stage's input, and
// the gradients of input and output.
func (b *Books) Slot() int64 { return 3*b.activation + b.model.MaskBytes }

// NodeBytes is what a node's process takes besides its stages.
func (b *Books) NodeBytes() int64 { return max(0, b.model.NodeBytes) }

// Moments is the optimizer state of the layers [first,end) of one stage.
func (b *Books) Moments(first, end int) int64 {
	bytes := b.moments[end] - b.moments[first]
	if first == 0 && end == b.Layers() { // both ends of a tied embedding have it once
		bytes -= plan.MomentVectors * 4 * int64(b.model.TiedGrad) / int64(b.parts.of(0))
	}
	return max(0, bytes)
}

// momentsFor are the prefixes of that in a pipeline of so many stages.
func (b *Books) momentsFor(stages int) []int64 { return b.alone(b.moments, stages, b.Moments) }

// Host is what the layers [first,end) of one stage take of host memory where their state is
// away.
func (b *Books) Host(first, end int) int64 {
	return b.Moments(first, end) + alignedMoments*int64(end-first)
}

// HostFor are the prefixes of that in a pipeline of so many stages.
func (b *Books) HostFor(stages int) []int64 {
	sums := append([]int64(nil), b.momentsFor(stages)...)
	for l := range sums {
		sums[l] += alignedMoments * int64(l)
	}
	return sums
}

// Window is the room on a device through which the state of a stage passes that is away.
func (b *Books) Window(first, end int) int64 {
	return model.WindowBytes(plan.MomentVectors, b.Moments(first, end)/(4*plan.MomentVectors))
}

// sumMoments adds up the optimizer's state.
func (b *Books) sumMoments() {
	b.moments = make([]int64, b.Layers()+1)
	for l := range b.Layers() {
		b.moments[l+1] = b.moments[l] + b.momentBytes(l)
	}
}

// momentBytes is what a stage holds at most of one layer's moments, alignment included.
func (b *Books) momentBytes(layer int) int64 {
	k := b.model.Costs[layer]
	trained, shares := k.ParamBytes-k.FrozenBytes, int64(b.parts.of(layer))
	if shares == 1 || trained == 0 {
		return plan.MomentVectors * trained
	}
	const aligned = 64
	return plan.MomentVectors * (trained/shares + 2*aligned)
}

// alone are prefixes for a pipeline of so many stages: one stage alone has both ends of a tied
// embedding, so that what it takes is not the sum of its layers.
func (b *Books) alone(sums []int64, stages int, of func(first, end int) int64) []int64 {
	if stages > 1 {
		return sums
	}
	sums = append([]int64(nil), sums...)
	sums[b.Layers()] = of(0, b.Layers())
	return sums
}
