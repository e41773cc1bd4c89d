package planner

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/elastic"
)

// leanLayers are all layers under one level of recomputation.
type leanLayers struct {
	level model.Recompute
	// saved is a prefix, as ledger.saved.
	saved []int64
	// pass is by layer what its passes need beyond what every stage has for them.
	pass []int64
	// before is by unit a prefix of times, made when it is asked for.
	before [][]schedule.Nanos
}

// fixedCosts are the layers' costs under a level that the rule fixes.
func (r RecomputeRule) fixedCosts(costs []model.LayerCost) []model.LayerCost {
	level, fixed := r.Level()
	if !fixed || level == model.RecomputeNothing {
		return costs
	}
	costs = slices.Clone(costs)
	for l, k := range costs {
		costs[l] = k.At(level)
	}
	return costs
}

// leanLevels are the levels that the planner may choose, which keep less the later they
// come; pass is what every stage has for its passes.
func (c *cluster) leanLevels(costs []model.LayerCost, pass int64) []leanLayers {
	if _, fixed := c.in.Run.Train.Recompute.Level(); fixed {
		return nil
	}
	var levels []leanLayers
	for level := range costs[0].Lean {
		lean := leanLayers{level: model.Recompute(level), saved: make([]int64, c.layers()+1), pass: make([]int64, c.layers())}
		for l, k := range costs {
			cost := k.Lean[level]
			lean.saved[l+1] = lean.saved[l] + cost.SavedBytes
			lean.pass[l] = max(0, cost.PassBytes+2*c.activationBytes-pass)
		}
		if level > 0 && lean.saved[c.layers()] > 0 { // costs without levels have none
			levels = append(levels, lean)
		}
	}
	return levels
}

// leanCount is how many levels the planner may choose from.
func (c *cluster) leanCount() (n int) {
	for _, l := range c.ledgers {
		if l != nil {
			n = max(n, len(l.lean))
		}
	}
	return n
}

// leanTimes is by unit and level the prefix of times under the level.
func (c *cluster) leanTimes(level, unit int) []schedule.Nanos {
	l := c.ledger(unit)
	lean := &l.lean[level]
	if lean.before == nil {
		lean.before = make([][]schedule.Nanos, len(c.units))
	}
	if lean.before[unit] == nil {
		u, before, again := c.units[unit], make([]schedule.Nanos, c.layers()+1), schedule.Nanos(0)
		for i, k := range l.costs {
			again += u.speed.Again(k, lean.level)
			before[i+1] = u.micro[i+1] + again
		}
		lean.before[unit] = before
	}
	return lean.before[unit]
}

// choices is what a unit can gain by recomputing the layers [first,end).
func (c *cluster) choices(unit, first, end int) []elastic.Layer {
	l, layers := c.ledger(unit), make([]elastic.Layer, end-first)
	for i := range layers {
		layers[i] = append(layers[i], elastic.Lean{})
		for _, lean := range l.lean {
			k, gain := l.costs[first+i], c.leanOf(unit, first+i, lean.level)
			gain.FreedBytes, gain.PassBytes = k.SavedBytes-k.Lean[lean.level].SavedBytes, lean.pass[first+i]
			layers[i] = append(layers[i], gain)
		}
	}
	return layers
}

// given is what a unit recomputes of the layers [first,end) because the run fixes it; nil
// where that is nothing, or to be chosen.
func (c *cluster) given(unit, first, end int) []elastic.Lean {
	level, fixed := c.in.Run.Train.Recompute.Level()
	if !fixed || level == model.RecomputeNothing {
		return nil
	}
	given := make([]elastic.Lean, end-first)
	for i := range given {
		given[i] = c.leanOf(unit, first+i, level)
	}
	return given
}

// aheadSlack is what the tensors of a layer may take beyond their sizes, for their alignment.
const aheadSlack = 4 << 10

// leanOf is what a unit computes again of a layer under a level, and the room for that ahead
// of its gradient.
func (c *cluster) leanOf(unit, layer int, level model.Recompute) (again elastic.Lean) {
	k := c.ledger(unit).costs[layer]
	again.Time = c.units[unit].speed.Again(k, level)
	if dropped := k.Lean[model.RecomputeNothing].SavedBytes - k.Lean[level].SavedBytes; dropped > 0 {
		again.AheadBytes = dropped + aheadSlack
	}
	return again
}

// againAt are a problem's costs with what the pipe's stages compute again of their layers.
func (c *cluster) againAt(p *pipe, problem elastic.Problem) schedule.Costs {
	costs := problem.Costs(p.Codecs)
	for s, st := range problem.Stages {
		first, _ := p.layers(s)
		early, all := c.again(p.units[s], first, p.Recompute[s], p.Ahead[s])
		costs.Stages[s].Input += all
		if st.Given != nil { // it is in Input
			early, _ = sumAgain(st.Given, p.Ahead[s])
		}
		costs.Stages[s].Input -= early
		costs.Stages[s].Recompute = early
	}
	return costs
}

// again is what a unit computes again of layers from first on for a micro-batch: what the last
// so many of them do ahead of the gradient, and in all.
func (c *cluster) again(unit, first int, levels []model.Recompute, ahead int) (early, all schedule.Nanos) {
	again := make([]elastic.Lean, len(levels))
	for i, level := range levels {
		if level != model.RecomputeNothing {
			again[i] = c.leanOf(unit, first+i, level)
		}
	}
	return sumAgain(again, ahead)
}

// sumAgain adds up the time of the last so many layers, and of all.
func sumAgain(layers []elastic.Lean, ahead int) (early, all schedule.Nanos) {
	for i, lean := range layers {
		if all += lean.Time; i >= len(layers)-ahead {
			early += lean.Time
		}
	}
	return early, all
}
