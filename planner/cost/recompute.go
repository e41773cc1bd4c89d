package cost

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
)

// Recomputations hold by level what a layer gains and pays. The first, model.RecomputeNothing, is
// zero. A level that does not exist frees nothing.
type Recomputations []Recomputation

// Recomputation is a level of recomputation of a layer in comparison with none.
type Recomputation struct {
	// FreedBytes are freed of each micro-batch in flight.
	FreedBytes int64
	// PassBytes are needed more by passes, once a stage.
	PassBytes int64
	// Time passes with recomputing for each micro-batch. AheadBytes is the room for what it restores,
	// once a stage, where that precedes the gradient.
	Time       schedule.Nanos
	AheadBytes int64
}

// Sensible reports whether all figures are within bounds.
func (r Recomputation) Sensible() bool {
	return max(r.PassBytes, r.AheadBytes) <= MaxBytes && min(r.PassBytes, r.AheadBytes, int64(r.Time)) >= 0 && r.Time <= Longest
}

// MaxBytes bounds any amount of a planning problem, so that no product of figures overflows.
const MaxBytes = 1 << 50

// RecomputeLevel has all layers under one level of recomputation.
type RecomputeLevel struct {
	Level model.Recompute
	// Saved is the prefix of what a micro-batch in flight keeps.
	Saved []int64
	// pass holds by layer what its passes need beyond what every stage has for them.
	pass []int64
}

// fixedCosts returns the layers' costs under the level that is fixed.
func (m Training) fixedCosts(costs []model.LayerCost) []model.LayerCost {
	if !m.Fixed || m.Level == model.RecomputeNothing {
		return costs
	}
	costs = slices.Clone(costs)
	for l, k := range costs {
		costs[l] = k.At(m.Level)
	}
	return costs
}

// openLevels returns the levels that stages may choose, which keep less the later they come. Every
// stage has pass bytes for its passes.
func (l *DeviceMemory) openLevels(pass int64) []RecomputeLevel {
	b := l.memory
	if b.model.Fixed {
		return nil
	}
	var levels []RecomputeLevel
	for level := range l.costs[0].Lean {
		lean := RecomputeLevel{Level: model.Recompute(level), Saved: make([]int64, b.Layers()+1), pass: make([]int64, b.Layers())}
		for i, k := range l.costs {
			cost := k.Lean[level]
			lean.Saved[i+1] = lean.Saved[i] + cost.SavedBytes
			lean.pass[i] = max(0, cost.PassBytes+2*b.activation-pass)
		}
		if level > 0 && lean.Saved[b.Layers()] > 0 { // costs without levels have none
			levels = append(levels, lean)
		}
	}
	return levels
}

// Levels returns what stages of the storage may choose from.
func (l *DeviceMemory) Levels() []RecomputeLevel { return l.levels }

// Level returns what all layers recompute; not ok where each stage chooses.
func (b *MemoryModel) Level() (level model.Recompute, ok bool) { return b.model.Level, b.model.Fixed }

// MostLevels returns from how many levels stages may choose in the storage that has most.
func (b *MemoryModel) MostLevels() (n int) {
	for _, l := range b.devices {
		if l != nil {
			n = max(n, len(l.levels))
		}
	}
	return n
}

// Choices returns what a device can gain by recomputing layers [first,end).
func (l *DeviceMemory) Choices(speed *Speed, first, end int) []Recomputations {
	layers := make([]Recomputations, end-first)
	for i := range layers {
		layers[i] = append(layers[i], Recomputation{})
		for _, lean := range l.levels {
			k, gain := l.costs[first+i], l.Again(speed, first+i, lean.Level)
			gain.FreedBytes, gain.PassBytes = k.SavedBytes-k.Lean[lean.Level].SavedBytes, lean.pass[first+i]
			layers[i] = append(layers[i], gain)
		}
	}
	return layers
}

// Given returns what a device recomputes of layers [first,end) because that is fixed; nil where it
// is nothing, or to be chosen.
func (l *DeviceMemory) Given(speed *Speed, first, end int) []Recomputation {
	level, fixed := l.memory.Level()
	if !fixed || level == model.RecomputeNothing {
		return nil
	}
	given := make([]Recomputation, end-first)
	for i := range given {
		given[i] = l.Again(speed, first+i, level)
	}
	return given
}

// aheadSlack are the bytes that the tensors of a layer may take beyond their sizes, for alignment.
const aheadSlack = 4 << 10

// Again returns what a device recomputes of a layer under a level, and the room for that ahead of
// its gradient.
func (l *DeviceMemory) Again(speed *Speed, layer int, level model.Recompute) (again Recomputation) {
	k := &l.costs[layer]
	again.Time = speed.Again(k, level)
	if dropped := k.Lean[model.RecomputeNothing].SavedBytes - k.Lean[level].SavedBytes; dropped > 0 {
		again.AheadBytes = dropped + aheadSlack
	}
	return again
}
