package planner

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/sharding"
)

// sharingOf is what a group could hold in parts, with what that frees on some of its stages:
// each micro-batch is a group of its own, since backwards alternate with forwards, and exchanges
// pass while the pipelines compute.
func (c *cluster) sharingOf(k *candidate, g shareGroup, on []cell) sharding.Stage {
	c = c.of(k)
	out := sharding.Stage{
		Groups:   (slices.Max(k.shares) + c.order.copies - 1) / c.order.copies,
		Exchange: c.exchangeTime(k.rows(), g.layers),
		Window:   k.passes(),
		Site:     c.oneSite(g.cells),
	}
	if k.simulated {
		out.Window = slices.Max(k.result.Pipelines)
	}
	for i, at := range on {
		for kind, bytes := range c.freed(at, inParts{c.copies(k.shape), g.layers}) {
			if i == 0 || bytes < out.FreedBytes[kind] {
				out.FreedBytes[kind] = bytes
			}
		}
	}
	return out
}

// freed is by kind what a stage has free with its layers in parts.
func (c *cluster) freed(at cell, in inParts) [sharding.Kinds]int64 {
	costs := c.ledger(at.unit).costs
	return [sharding.Kinds]int64{
		sharding.OptimizerState: c.with(inParts{}).fixedIn(at.unit, at.first, at.end, c.isAway(at.unit)) - c.with(in).fixedIn(at.unit, at.first, at.end, c.isAway(at.unit)),
		sharding.Gradients:      c.freedOf(at, in.replicas, func(l int) int64 { return costs[l].ParamBytes - costs[l].FrozenBytes }),
		sharding.Parameters:     c.freedOf(at, in.replicas, func(l int) int64 { return costs[l].ParamBytes + costs[l].CopyBytes }),
	}
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

// lacking are the stages of a group that lack memory to hold all whole, to compute nothing again
// that the run does not ask for, and to have as much in flight as their links call for; bytes is
// what the tightest of them lacks. Under schedules whose programs say what is in flight nobody
// has reckoned that.
func (c *cluster) lacking(k *candidate, g shareGroup) (cells []cell, bytes int64) {
	if k.layout != nil {
		return nil, 0
	}
	for r, p := range k.pipes {
		problem := c.of(k).with(inParts{}).problem(p)
		full, _, err := schedule.MinimalWarmups(problem.Costs(p.Codecs), nil)
		if err != nil {
			continue // no memory would do
		}
		for s, u := range p.units {
			at := cell{unit: u}
			at.first, at.end = p.layers(s)
			lack := int64(min(full[s]+1, k.shares[r]))*problem.Stages[s].SlotBytes - problem.Stages[s].RoomBytes
			if lack > 0 && contains(g.layers, at.first) {
				cells, bytes = append(cells, at), max(bytes, lack)
			}
		}
	}
	return cells, bytes
}
