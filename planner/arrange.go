package planner

import (
	"slices"

	"pnode/planner/plan"
)

// arrange makes a candidate of units in order. Units that have memory of their own keep the
// optimizer state of their stages in that of their node if this brings what memory keeps others
// from: to fit at all or, of no very many units, a shorter step for all that the copies take.
func (c *cluster) arrange(s shape, order []int) (*candidate, error) {
	here, err := c.arrangeParts(s, order)
	away := c.offloaders(order)
	if away == nil || err == nil && (len(c.units) > settleUpTo || !c.of(here).wantsMemory(here)) {
		return here, err
	}
	there, fail := c.keeping(c.books().Parts(), away).arrangeParts(s, order)
	if err == nil && (fail != nil || there.estimate >= here.estimate) {
		return here, nil
	}
	return there, fail
}

// offloaders are those of some units that may keep optimizer state in host memory; nil for none.
func (c *cluster) offloaders(units []int) (away []bool) {
	for _, u := range units {
		if c.units[u].CopyBytesPerS > 0 && c.units[u].HostBytes > 0 {
			if away == nil {
				away = make([]bool, len(c.units))
			}
			away[u] = true
		}
	}
	return away
}

// arrangeParts makes a candidate of units in order. Where the rule leaves it open the replicas
// hold their optimizer state in parts if that brings what memory keeps the whole from: to fit
// at all, or a shorter step with more in flight, other cuts or less recomputed.
func (c *cluster) arrangeParts(s shape, order []int) (*candidate, error) {
	rule, n := c.in.Run.Train.Shard, c.copies(s)
	if n > 1 && rule == plan.ShardOn {
		return c.sharing(n).arrangeAs(s, order)
	}
	whole, err := c.arrangeAs(s, order)
	if n == 1 || rule == plan.ShardOff || err == nil && !c.wantsMemory(whole) {
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

// arrangeAs makes a candidate of units in order: the first stages are replica 0.
func (c *cluster) arrangeAs(s shape, order []int) (*candidate, error) {
	k := &candidate{shape: s, pipes: make([]*pipe, s.replicas), sharded: c.books().Parts().Layers, away: c.site.Away}
	micros := (c.in.Run.Train.Micros + s.replicas - 1) / s.replicas
	for r := range k.pipes {
		units := order[r*s.stages : (r+1)*s.stages]
		p, err := c.cut(units, micros)
		if err == nil {
			p, err = c.deepened(p)
		}
		if err != nil {
			return nil, c.noFit(units, err)
		}
		k.pipes[r] = p
	}
	return k, c.estimate(k)
}
