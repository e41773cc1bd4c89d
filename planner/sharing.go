package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
)

// momentVectors is how many of the trainingBytes hold the optimizer's state.
const momentVectors = 2

// inParts is whose optimizer state replicas hold in parts; the zero value is nobody's.
type inParts struct {
	replicas int
	layers   []LayerRange
}

// with is the cluster in which so many replicas hold the optimizer state of layers in parts.
func (c *cluster) with(p inParts) *cluster { return c.keeping(p, c.away) }

// keeping is with, where units keep what they have of it in host memory.
func (c *cluster) keeping(p inParts, away []bool) *cluster {
	if p.replicas <= 1 || len(p.layers) == 0 {
		p = inParts{}
	}
	if !slices.Contains(away, true) {
		away = nil
	}
	if p.layers == nil && away == nil {
		return c.whole
	}
	key := fmt.Sprint(p, away)
	if c.sharers[key] == nil {
		other := *c.whole
		other.parts, other.away = p, away
		other.resum()
		c.sharers[key] = &other
	}
	return c.sharers[key]
}

// sharing is the cluster in which so many replicas hold all of the optimizer state in parts.
func (c *cluster) sharing(replicas int) *cluster {
	return c.with(inParts{replicas, c.everything()})
}

// under is the cluster with the optimizer state where a plan has it.
func (c *cluster) under(p Plan) *cluster {
	return c.keeping(inParts{len(p.Replicas), p.Sharded}, c.awayIn(p))
}

// of is the cluster with the ordering of a candidate, and the optimizer state where that has it.
func (c *cluster) of(k *candidate) *cluster {
	o := c.asked.order
	if k.groups != nil {
		o = k.groups.order
	}
	return c.ordered(o).keeping(inParts{c.copies(k.shape), k.sharded}, k.away)
}

// ordered is the cluster whose plans have an ordering.
func (c *cluster) ordered(o ordering) *cluster {
	key := o.spec.String()
	if key == c.asked.order.spec.String() {
		return c.asked
	}
	if c.byOrder[key] == nil {
		other := *c.asked
		other.order, other.whole, other.sharers = o, &other, map[string]*cluster{}
		c.byOrder[key] = &other
	}
	return c.byOrder[key]
}

// copies is how many replicas a shape has.
func (c *cluster) copies(s shape) int { return s.replicas * c.order.copies }

// shares is into how many parts the optimizer state of a layer is cut.
func (c *cluster) shares(layer int) int {
	if contains(c.parts.layers, layer) {
		return c.parts.replicas
	}
	return 1
}

// momentBytes is what a stage holds at most of one layer's moments, alignment included.
func (c *cluster) momentBytes(layer int) int64 {
	k := c.in.Costs[layer]
	trained, shares := k.ParamBytes-k.FrozenBytes, int64(c.shares(layer))
	if shares == 1 || trained == 0 {
		return momentVectors * trained
	}
	const aligned = 64
	return momentVectors * (trained/shares + 2*aligned)
}

// update is what the optimizer takes on a unit for the layers [first,end).
func (c *cluster) update(unit, first, end int) schedule.Nanos {
	between := func(from, to int) schedule.Nanos {
		if to <= from {
			return 0
		}
		return c.units[unit].times[to].Update - c.units[unit].times[from].Update
	}
	sum := between(first, end)
	for _, r := range c.parts.layers {
		part := between(max(first, r.First), min(end, r.End))
		sum -= part - part/schedule.Nanos(c.parts.replicas)
	}
	if c.isAway(unit) {
		sum = max(sum, c.crossing(unit, first, end))
	}
	return sum
}

// arrangeParts makes a candidate of units in order. Where the rule leaves it open the replicas
// hold their optimizer state in parts if that brings what memory keeps the whole from: to fit
// at all, or a shorter step with more in flight, other cuts or less recomputed.
func (c *cluster) arrangeParts(s shape, order []int) (*candidate, error) {
	rule, n := c.in.Run.Train.Shard, c.copies(s)
	if n > 1 && rule == ShardOn {
		return c.sharing(n).arrangeAs(s, order)
	}
	whole, err := c.arrangeAs(s, order)
	if n == 1 || rule == ShardOff || err == nil && !c.wantsMemory(whole) {
		return whole, err
	}
	parts, fail := c.sharing(n).arrangeAs(s, order)
	if fail != nil || err == nil && parts.estimate >= whole.estimate {
		return whole, err
	}
	return parts, nil
}

// wantsMemory tells whether more memory could make a candidate's step shorter.
func (c *cluster) wantsMemory(k *candidate) bool {
	return k.tight() || k.recomputes() || c.order.elastic() && slices.ContainsFunc(k.pipes, c.crowded)
}

// roomiestFor is the cluster in which a shape takes the least memory.
func (c *cluster) roomiestFor(s shape) *cluster {
	if c.in.Run.Train.Shard == ShardOff {
		return c
	}
	return c.sharing(c.copies(s))
}
