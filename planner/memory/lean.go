package memory

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/planner/cost"
	"pnode/planner/elastic"
)

// Level is all layers under one level of recomputation.
type Level struct {
	level model.Recompute
	// saved is a prefix, as Ledger.saved.
	saved []int64
	// pass is by layer what its passes need beyond what every stage has for them.
	pass []int64
}

// Recompute is the level.
func (v Level) Recompute() model.Recompute { return v.level }

// SavedFor are the prefixes of what a micro-batch in flight keeps.
func (v Level) SavedFor() []int64 { return v.saved }

// fixedCosts are the layers' costs under the level that is fixed.
func (m Model) fixedCosts(costs []model.LayerCost) []model.LayerCost {
	if !m.Fixed || m.Level == model.RecomputeNothing {
		return costs
	}
	costs = slices.Clone(costs)
	for l, k := range costs {
		costs[l] = k.At(m.Level)
	}
	return costs
}

// openLevels are the levels that stages may choose, which keep less the later they come; pass
// is what every stage has for its passes.
func (l *Ledger) openLevels(pass int64) []Level {
	b := l.books
	if b.model.Fixed {
		return nil
	}
	var levels []Level
	for level := range l.costs[0].Lean {
		lean := Level{level: model.Recompute(level), saved: make([]int64, b.Layers()+1), pass: make([]int64, b.Layers())}
		for i, k := range l.costs {
			cost := k.Lean[level]
			lean.saved[i+1] = lean.saved[i] + cost.SavedBytes
			lean.pass[i] = max(0, cost.PassBytes+2*b.activation-pass)
		}
		if level > 0 && lean.saved[b.Layers()] > 0 { // costs without levels have none
			levels = append(levels, lean)
		}
	}
	return levels
}

// Levels are those that stages of the ledger's storage may choose from.
func (l *Ledger) Levels() []Level { return l.levels }

// Level is what all layers compute again; not ok where each stage chooses.
func (b *Books) Level() (level model.Recompute, ok bool) { return b.model.Level, b.model.Fixed }

// MostLevels is from how many levels stages may choose in the storage that has most.
func (b *Books) MostLevels() (n int) {
	for _, l := range b.ledgers {
		if l != nil {
			n = max(n, len(l.levels))
		}
	}
	return n
}

// Choices is what a device can gain by recomputing the layers [first,end).
func (l *Ledger) Choices(speed cost.Speed, first, end int) []elastic.Layer {
	layers := make([]elastic.Layer, end-first)
	for i := range layers {
		layers[i] = append(layers[i], elastic.Lean{})
		for _, lean := range l.levels {
			k, gain := l.costs[first+i], l.Again(speed, first+i, lean.level)
			gain.FreedBytes, gain.PassBytes = k.SavedBytes-k.Lean[lean.level].SavedBytes, lean.pass[first+i]
			layers[i] = append(layers[i], gain)
		}
	}
	return layers
}

// Given is what a device recomputes of the layers [first,end) because that is fixed; nil where
// it is nothing, or to be chosen.
func (l *Ledger) Given(speed cost.Speed, first, end int) []elastic.Lean {
	level, fixed := l.books.Level()
	if !fixed || level == model.RecomputeNothing {
		return nil
	}
	given := make([]elastic.Lean, end-first)
	for i := range given {
		given[i] = l.Again(speed, first+i, level)
	}
	return given
}

// aheadSlack is what the tensors of a layer may take beyond their sizes, for their alignment.
const aheadSlack = 4 << 10

// Again is what a device computes again of a layer under a level, and the room for that ahead
// of its gradient.
func (l *Ledger) Again(speed cost.Speed, layer int, level model.Recompute) (again elastic.Lean) {
	k := l.costs[layer]
	again.Time = speed.Again(k, level)
	if dropped := k.Lean[model.RecomputeNothing].SavedBytes - k.Lean[level].SavedBytes; dropped > 0 {
		again.AheadBytes = dropped + aheadSlack
	}
	return again
}
