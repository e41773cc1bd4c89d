package cost

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// DeviceMemory adds up what the model's layers take of a device in one storage, and what each level of
// recomputation frees.
type DeviceMemory struct {
	memory  *MemoryModel
	storage model.Storage
	costs   []model.LayerCost
	// fixed and saved are prefixes: what layers take in training, and what a micro-batch in flight
	// keeps of them.
	fixed, saved []int64
	pass         int64
	levels       []RecomputeLevel
}

// Open returns the memory of devices with a storage. The error is ErrNoHalfCosts.
func (b *MemoryModel) Open(s model.Storage) (*DeviceMemory, error) {
	if b.devices[s] != nil {
		return b.devices[s], nil
	}
	costs := b.model.Costs
	if s != model.StorageF32 {
		costs = b.model.HalfCosts
	}
	if len(costs) != b.Layers() {
		return nil, ErrNoHalfCosts
	}
	l := &DeviceMemory{memory: b, storage: s, costs: b.model.fixedCosts(costs), saved: make([]int64, b.Layers()+1)}
	b.devices[s] = l
	l.sumFixed()
	var pass, halves, tables int64
	for i, k := range l.costs {
		l.saved[i+1] = l.saved[i] + k.SavedBytes
		pass, halves = max(pass, k.PassBytes-k.PassHalfBytes), max(halves, k.PassHalfBytes)
		tables = max(tables, k.TableBytes)
	}
	// The passes of all layers share what one needs, and two gradients of the stream.
	pass += 2 * b.activation
	l.levels = l.openLevels(pass + halves)
	l.pass = b.NodeBytes() + b.model.Scratch + pass + halves + tables
	return l, nil
}

// Device returns the memory of devices with a storage that was opened, nil for any other.
func (b *MemoryModel) Device(s model.Storage) *DeviceMemory { return b.devices[s] }

// Costs returns by layer the costs of a micro-batch, under the level that is fixed.
func (l *DeviceMemory) Costs() []model.LayerCost { return l.costs }

// Pass returns what each stage takes whatever the layers and the slots, with the node's own.
func (l *DeviceMemory) Pass() int64 { return l.pass }

// Saved returns what a micro-batch in flight keeps of layers [first,end).
func (l *DeviceMemory) Saved(first, end int) int64 { return l.saved[end] - l.saved[first] }

// SavedFor returns the prefixes of Saved.
func (l *DeviceMemory) SavedFor() []int64 { return l.saved }

// Fixed returns what layers [first,end) of one stage take, with their optimizer state offloaded or
// not.
func (l *DeviceMemory) Fixed(first, end int, offload bool) int64 {
	b, fixed := l.memory, l.fixed[end]-l.fixed[first]
	if offload {
		fixed += b.Window(first, end) - b.Moments(first, end)
	}
	if first == 0 && end == b.Layers() {
		// Parameters and moments are there once, the gradient of each end is not.
		tied, trained := int64(b.model.Tied), int64(b.model.TiedGrad)
		fixed -= 4*tied + plan.MomentVectors*4*trained/int64(b.parts.of(0))
		if l.storage != model.StorageF32 {
			fixed -= 2 * tied
		}
	}
	return fixed
}

// FixedFor returns the prefixes of Fixed in a pipeline of so many stages, without the window.
func (l *DeviceMemory) FixedFor(stages int, offload bool) []int64 {
	sums := l.memory.alone(l.fixed, stages, func(first, end int) int64 { return l.Fixed(first, end, false) })
	if !offload {
		return sums
	}
	sums = slices.Clone(sums)
	for i, bytes := range l.memory.momentsFor(stages) {
		sums[i] -= bytes
	}
	return sums
}

// sumFixed adds up what layers take in training.
func (l *DeviceMemory) sumFixed() {
	l.fixed = make([]int64, len(l.costs)+1)
	for i, k := range l.costs {
		trained := k.ParamBytes - k.FrozenBytes
		l.fixed[i+1] = l.fixed[i] + k.ParamBytes + (trainingBytes-1-plan.MomentVectors+int64(l.memory.parts.Partials))*trained + l.memory.momentBytes(i) + l.memory.Previous(i, i+1) + k.CopyBytes
	}
}

// LeastFixed returns what the whole model takes at least in a pipeline of so many stages, with its
// optimizer state offloaded or not, in the storage that is best for it.
func (b *MemoryModel) LeastFixed(stages int, offload bool) int64 {
	return b.least(func(l *DeviceMemory) int64 { return l.FixedFor(stages, offload)[b.Layers()] })
}

// LeastSaved returns what one micro-batch keeps of the whole model when the most is recomputed, in
// the storage that is best for it.
func (b *MemoryModel) LeastSaved() int64 {
	return b.least(func(l *DeviceMemory) int64 {
		saved := l.saved[b.Layers()]
		for _, level := range l.levels {
			saved = min(saved, level.Saved[b.Layers()])
		}
		return saved
	})
}

// least returns the least figure of the opened storages, 0 of none.
func (b *MemoryModel) least(of func(*DeviceMemory) int64) int64 {
	least := int64(-1)
	for _, l := range b.devices {
		if l == nil {
			continue
		}
		if bytes := of(l); least < 0 || bytes < least {
			least = bytes
		}
	}
	return max(0, least)
}
