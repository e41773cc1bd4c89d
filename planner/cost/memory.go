package cost

import (
	"errors"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// ErrNoHalfCosts reports that a stage should store halves, whose costs are missing.
var ErrNoHalfCosts = errors.New("costs in halves are missing")

const (
	// trainingBytes counts the vectors of training for each parameter: the parameter itself, its
	// gradient and AdamW's two moments, all float32.
	trainingBytes = 4
	// alignedMoments are the bytes that the tensors of a layer's state may take beyond their sizes.
	alignedMoments = 64 * plan.MomentVectors
)

// Training has what layers take on their own, and how they are trained.
type Training struct {
	// Costs holds by layer the costs of one micro-batch in float32 storage, HalfCosts those in BF16
	// or F16 storage, which cost the same; nil where no stage has either.
	Costs, HalfCosts []model.LayerCost
	// Level is what all layers recompute where that is Fixed; else each stage chooses.
	Level model.Recompute
	Fixed bool
	// Token counts the elements that a token has between layers, 0 where costs come without a model.
	Token int64
	// Tied counts the parameters that both ends of the model share, TiedGrad those that train.
	Tied, TiedGrad int
	// MaskBytes say where the documents of a micro-batch begin; 0 where nobody asks.
	MaskBytes int64
	// ShareBytes returns the most that one of so many replicas has of a layer's optimizer state, where none cuts a matrix; nil: equal parts.
	ShareBytes func(layer, replicas int) int64
	// Scratch are the bytes that an update needs besides what it changes.
	Scratch int64
	// NodeBytes is the memory of a node's process besides its stages.
	NodeBytes int64
}

// Parts say how much of the vectors that training keeps a replica has: the layers whose optimizer state
// replicas hold in parts, and how many partial sums of gradients each stage may have (plan.Sums). The
// zero value is all of the state, and no partial sums.
type Parts struct {
	Replicas int
	Layers   plan.LayerRanges
	Partials int
	// Exchanged counts the vectors of gradients that a stage has to exchange with other replicas; 0 of one replica.
	Exchanged int
	// Outer are the bytes of the node's memory that outer steps take for each parameter; 0 where there are none.
	Outer int64
	// Undo reports that stages keep the state before an update, which may be undone (plan.Plan.PostValidation).
	Undo bool
}

// of returns into how many parts the state of a layer is cut.
func (p Parts) of(layer int) int {
	if p.Layers.Contains(layer) {
		return p.Replicas
	}
	return 1
}

// MemoryModel adds up what a model's layers take in training, with some optimizer state in parts.
type MemoryModel struct {
	model Training
	parts Parts
	// params, moments and single are prefixes over layers in bytes: single of the parameters that have one moment.
	params, moments, single []int64
	activation              int64
	exchange                exchange
	devices                 []*DeviceMemory // by storage, nil where nobody has opened it
}

// NewMemory returns the memory of a model that has nothing in parts.
func NewMemory(m Training) *MemoryModel {
	b := &MemoryModel{model: m, params: make([]int64, len(m.Costs)+1), single: make([]int64, len(m.Costs)+1), devices: make([]*DeviceMemory, len(model.StorageNames()))}
	for l, k := range m.Costs {
		b.params[l+1], b.single[l+1] = b.params[l]+k.ParamBytes, b.single[l]+k.OneMomentBytes
		b.activation = max(b.activation, k.BoundaryBytes)
	}
	b.exchange = newExchange(m.Costs)
	b.sumMoments()
	return b
}

// InParts returns the memory of the same model with other parts.
func (b *MemoryModel) InParts(p Parts) *MemoryModel {
	out := *b
	out.parts = p
	out.sumMoments()
	out.devices = make([]*DeviceMemory, len(b.devices))
	for s, l := range b.devices {
		if l != nil {
			other := *l
			other.memory = &out
			other.sumFixed()
			out.devices[s] = &other
		}
	}
	return &out
}

// Parts returns which optimizer state is in parts, and how many partial sums there are.
func (b *MemoryModel) Parts() Parts { return b.parts }

// Layers returns how many layers the model has.
func (b *MemoryModel) Layers() int { return len(b.model.Costs) }

// All returns the range of all layers.
func (b *MemoryModel) All() plan.LayerRanges { return plan.LayerRanges{{First: 0, End: b.Layers()}} }

// Params returns the bytes of the parameters of layers [first,end).
func (b *MemoryModel) Params(first, end int) int64 { return b.params[end] - b.params[first] }

// Boundary returns the float32 bytes of a layer's output for a micro-batch.
func (b *MemoryModel) Boundary(layer int) int64 { return b.model.Costs[layer].BoundaryBytes }

// Token counts the elements that a token has of it.
func (b *MemoryModel) Token() int64 { return b.model.Token }

// Activation returns the largest boundary: what crosses between stages for a micro-batch, one way.
func (b *MemoryModel) Activation() int64 { return b.activation }

// Slot returns the bytes of each micro-batch in flight, whatever the layers: the stage's input,
// and the gradients of input and output.
func (b *MemoryModel) Slot() int64 { return 3*b.activation + b.model.MaskBytes }

// NodeBytes returns the memory of a node's process besides its stages.
func (b *MemoryModel) NodeBytes() int64 { return max(0, b.model.NodeBytes) }

// Moments returns the bytes of optimizer state of layers [first,end) of one stage.
func (b *MemoryModel) Moments(first, end int) int64 {
	bytes := b.moments[end] - b.moments[first]
	if first == 0 && end == b.Layers() { // both ends of a tied embedding have it once
		bytes -= plan.MomentVectors * 4 * int64(b.model.TiedGrad) / int64(b.parts.of(0))
	}
	return max(0, bytes)
}

// momentsFor returns the prefixes of Moments in a pipeline of so many stages.
func (b *MemoryModel) momentsFor(stages int) []int64 { return b.alone(b.moments, stages, b.Moments) }

// Host returns the bytes of host memory that layers [first,end) of one stage take with their
// optimizer state there.
func (b *MemoryModel) Host(first, end int) int64 {
	return b.Moments(first, end) + alignedMoments*int64(end-first)
}

// HostFor returns the prefixes of Host in a pipeline of so many stages.
func (b *MemoryModel) HostFor(stages int) []int64 {
	sums := append([]int64(nil), b.momentsFor(stages)...)
	for l := range sums {
		sums[l] += alignedMoments * int64(l)
	}
	return sums
}

// Previous returns the bytes of the state before an update that layers [first,end) keep to undo it; 0 where they do not.
func (b *MemoryModel) Previous(first, end int) int64 {
	if !b.parts.Undo {
		return 0
	}
	return b.Moments(first, end) + b.firstMoments(first, end)
}

// firstMoments returns the bytes of the first vector of Moments, which is as long as what is trained.
func (b *MemoryModel) firstMoments(first, end int) int64 {
	single := (plan.MomentVectors - 1) * (b.single[end] - b.single[first])
	return (b.Moments(first, end) + single) / plan.MomentVectors
}

// Window returns the bytes of a device through which a stage's offloaded optimizer state passes.
func (b *MemoryModel) Window(first, end int) int64 {
	return model.WindowBytes(plan.MomentVectors, b.firstMoments(first, end)/4)
}

// sumMoments adds up the optimizer's state.
func (b *MemoryModel) sumMoments() {
	b.moments = make([]int64, b.Layers()+1)
	for l := range b.Layers() {
		b.moments[l+1] = b.moments[l] + b.momentBytes(l)
	}
}

// momentBytes returns what a stage holds at most of one layer's moments, alignment included.
func (b *MemoryModel) momentBytes(layer int) int64 {
	k := b.model.Costs[layer]
	trained, shares := k.ParamBytes-k.FrozenBytes, int64(b.parts.of(layer))
	if shares == 1 || trained == 0 {
		return plan.MomentBytes(k)
	}
	const aligned = 64
	if b.model.ShareBytes != nil {
		return b.model.ShareBytes(layer, int(shares)) + plan.MomentVectors*2*aligned
	}
	return plan.MomentVectors * (trained/shares + 2*aligned)
}

// shared returns what of the time of an update of layers [first,end), which replicas have in parts, the largest part takes.
func (b *MemoryModel) shared(whole schedule.Nanos, first, end int) schedule.Nanos {
	if b.model.ShareBytes == nil {
		return whole / schedule.Nanos(b.parts.Replicas)
	}
	all := int64(0)
	for _, k := range b.model.Costs[first:end] {
		all += plan.MomentBytes(k)
	}
	const digits = 1 << 10
	return whole / digits * schedule.Nanos(((b.moments[end]-b.moments[first])*digits+all-1)/max(1, all))
}

// alone returns prefixes for a pipeline of so many stages. One stage alone has both ends of a tied
// embedding, so that what it takes is not the sum of its layers.
func (b *MemoryModel) alone(sums []int64, stages int, of func(first, end int) int64) []int64 {
	if stages > 1 {
		return sums
	}
	sums = append([]int64(nil), sums...)
	sums[b.Layers()] = of(0, b.Layers())
	return sums
}
