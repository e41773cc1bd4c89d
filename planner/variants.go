package planner

import (
	"fmt"
	"slices"

	"pnode/planner/memory"
	"pnode/planner/plan"
)

// with is the cluster in which so many replicas hold the optimizer state of layers in parts.
func (c *cluster) with(p memory.Parts) *cluster { return c.keeping(p, c.site.Away) }

// keeping is with, where units keep what they have of it in host memory.
func (c *cluster) keeping(p memory.Parts, away []bool) *cluster {
	if p.Replicas <= 1 || len(p.Layers) == 0 {
		p = memory.Parts{}
	}
	if !slices.Contains(away, true) {
		away = nil
	}
	if p.Layers == nil && away == nil {
		return c.whole
	}
	key := fmt.Sprint(p, away)
	if c.sharers[key] == nil {
		other := *c.whole
		other.site = c.whole.site.Keeping(c.whole.books().InParts(p), away)
		c.sharers[key] = &other
	}
	return c.sharers[key]
}

// sharing is the cluster in which so many replicas hold all of the optimizer state in parts.
func (c *cluster) sharing(replicas int) *cluster {
	return c.with(memory.Parts{Replicas: replicas, Layers: c.books().All()})
}

// under is the cluster with the optimizer state where a plan has it.
func (c *cluster) under(p plan.Plan) *cluster {
	return c.keeping(memory.Parts{Replicas: len(p.Replicas), Layers: p.Sharded}, c.awayIn(p))
}

// of is the cluster with the ordering of a candidate, and the optimizer state where that has it.
func (c *cluster) of(k *candidate) *cluster {
	o := c.asked.order
	if k.groups != nil {
		o = k.groups.order
	}
	return c.ordered(o).keeping(memory.Parts{Replicas: c.copies(k.shape), Layers: k.sharded}, k.away)
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

// awayIn are the units that keep it there under a plan; nil for none.
func (c *cluster) awayIn(p plan.Plan) (away []bool) {
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			if u := c.find(place.Peer, place.Device); place.Offload && u >= 0 {
				if away == nil {
					away = make([]bool, len(c.units))
				}
				away[u] = true
			}
		}
	}
	return away
}

// roomiestFor is the cluster in which a shape takes the least memory.
func (c *cluster) roomiestFor(s shape) *cluster {
	if c.in.Run.Train.Shard == plan.ShardOff {
		return c
	}
	return c.sharing(c.copies(s))
}

// stored is the cluster in which the stages of a plan store as it says.
func (c *cluster) stored(p plan.Plan) (*cluster, error) {
	as := c.in.storingOf(p)
	if !slices.ContainsFunc(p.Workers(), func(s plan.WorkerID) bool {
		u := c.find(s.Peer, s.Device)
		return u >= 0 && c.units[u].Storage != as(s.Peer, plan.DeviceProfile{Name: s.Device})
	}) {
		return c, nil
	}
	other, err := newCluster(c.in, as)
	if err == nil {
		other.order = c.order
	}
	return other, err
}
