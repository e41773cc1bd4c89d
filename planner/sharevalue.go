package planner

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/sharding"
)

// sharingOf is what a group could hold in parts: each micro-batch is a group of its own, since
// backwards alternate with forwards, and exchanges pass while the pipelines compute.
func (c *cluster) sharingOf(k *candidate, g shareGroup) sharding.Stage {
	n := c.copies(k.shape)
	out := sharding.Stage{
		Groups:   (slices.Max(k.shares) + c.order.copies - 1) / c.order.copies,
		Exchange: c.exchangeTime(k.rows(), g.layers),
		Window:   k.passes(),
		Site:     c.oneSite(g.cells),
	}
	if k.simulated {
		out.Window = slices.Max(k.result.Pipelines)
	}
	parts := c.with(inParts{n, g.layers})
	for i, at := range g.cells {
		freed := [sharding.Kinds]int64{
			sharding.OptimizerState: c.whole.fixedIn(at.first, at.end) - parts.fixedIn(at.first, at.end),
			sharding.Gradients:      c.freedOf(at, n, func(l int) int64 { return c.in.Costs[l].ParamBytes - c.in.Costs[l].FrozenBytes }),
			sharding.Parameters:     c.freedOf(at, n, func(l int) int64 { return c.in.Costs[l].ParamBytes + c.in.Costs[l].CopyBytes }),
		}
		for kind, bytes := range freed {
			if i == 0 || bytes < out.FreedBytes[kind] {
				out.FreedBytes[kind] = bytes
			}
		}
	}
	return out
}

// freedOf is what a stage on one of so many replicas would not hold of something that layers
// have: all but its own part, and the one layer that is whole while it is at hand.
func (c *cluster) freedOf(at cell, replicas int, bytes func(layer int) int64) int64 {
	var sum, largest int64
	for l := at.first; l < at.end; l++ {
		sum, largest = sum+bytes(l), max(largest, bytes(l))
	}
	return max(0, sum-sum/int64(replicas)-largest)
}

// siteRTT is the longest round trip between peers of one site.
const siteRTT = 5e6

// oneSite tells whether all stages are on peers whose links were measured to be short.
func (c *cluster) oneSite(cells []cell) bool {
	for i, a := range cells {
		for _, b := range cells[:i] {
			link, measured := c.links.between(c.units[a.unit].peer, c.units[b.unit].peer)
			if !measured || link.RTTNanos > siteRTT {
				return false
			}
		}
	}
	return true
}

// missing is what the tightest stage of a group lacks of the memory with which nothing of its
// would be in parts, nothing computed again that the run does not ask for, and as much in
// flight as its links call for; 0 or less where nothing is.
func (c *cluster) missing(k *candidate, g shareGroup) (bytes int64) {
	if k.layout != nil {
		return c.missingIn(k.layout, g)
	}
	for r, p := range k.pipes {
		problem := c.whole.problem(p)
		costs := problem.Costs(p.Codecs)
		full, _, err := schedule.MinimalWarmups(costs, nil)
		if err != nil {
			continue
		}
		for s := range p.units {
			if first, _ := p.layers(s); !contains(g.layers, first) {
				continue
			}
			slots := int64(min(full[s]+1, k.shares[r]))
			bytes = max(bytes, slots*problem.Stages[s].SlotBytes-problem.Stages[s].RoomBytes)
		}
	}
	return bytes
}

// missingIn is missing under a schedule whose programs say what is in flight.
func (c *cluster) missingIn(l *layout, g shareGroup) (bytes int64) {
	for _, at := range g.cells {
		var need int64
		for _, h := range l.cellsOn(at.unit) {
			other := *l.cell(h)
			other.levels, other.ahead, other.shares = nil, 0, nil
			need += c.whole.cellBytes(other)
		}
		bytes = max(bytes, need-c.stageRoom(at.unit))
	}
	return bytes
}
