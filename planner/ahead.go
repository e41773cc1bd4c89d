package planner

import (
	"pnode/pipeline/model"
)

// aheadSlack is what the tensors of a layer may take beyond their sizes, for their alignment.
const aheadSlack = 4 << 10

// aheadOf is ahead of a candidate's stage; none where a device holds several.
func (c *cluster) aheadOf(k *candidate, replica, stage int) int {
	if k.layout != nil {
		return 0
	}
	p := k.pipes[replica]
	return c.ahead(p, stage, min(p.Warmups[stage]+1, k.shares[replica]))
}

// ahead is how many of the last layers of a stage that keeps so many micro-batches in flight
// have room of their own for what they compute again. They do so while the gradient is waited
// for, the others when it has come to them. It is room that nothing else has a use for.
func (c *cluster) ahead(p *pipe, stage, inFlight int) int {
	first, end := p.layers(stage)
	level, fixed := c.in.Run.Train.Recompute.Level()
	levels := p.Recompute[stage]
	if fixed {
		levels = level.Uniform(end - first)
	}
	if levels == nil || stage == len(p.units)-1 { // the last stage waits for no gradient
		return 0
	}
	left := c.units[p.units[stage]].free - c.fixedIn(first, end) - p.Rooms[stage].PassBytes - int64(inFlight)*p.Rooms[stage].SlotBytes
	layers := 0
	for l := end - 1; l >= first; l-- {
		at := levels[l-first]
		if at == model.RecomputeNothing {
			continue
		}
		lean := c.in.Costs[l].Lean
		dropped := lean[model.RecomputeNothing].SavedBytes - lean[at].SavedBytes
		if left -= dropped + aheadSlack; left < 0 {
			break
		}
		if dropped > 0 {
			layers = end - l
		}
	}
	return layers
}
