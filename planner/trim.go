package planner

import (
	"cmp"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
	"pnode/planner/sharding"
)

// shareGroups are a candidate's, in the order of layers.
func (c *cluster) shareGroups(k *candidate) []sharding.Group {
	return sharding.Groups(k.rows(), c.layers(), c.in.Run.Model.TiedGradLen() > 0)
}

// trimSharing has the replicas of a candidate hold the optimizer state of a group in parts only
// where with the whole its pipelines would take longer or not fit, something would be computed
// again, or updates would take a part of the step that counts: a checkpoint brings parts
// together.
func (c *cluster) trimSharing(k *candidate) *candidate {
	if len(k.sharded) == 0 || c.in.Run.Train.Shard == plan.ShardOn {
		return k
	}
	simulated, most := k.simulated, near(k.step())
	for _, g := range c.dearestFirst(k) {
		other, err := c.resharded(k, k.sharded.Without(g.Layers, c.layers()))
		if err == nil && simulated {
			err = other.simulate()
		}
		if err == nil && other.passes() <= k.passes() && other.step() <= most && (k.recomputes() || !other.recomputes()) {
			k = other
		}
	}
	return k
}

// dearestFirst are a candidate's groups that are in parts, those whose exchange takes longest
// first.
func (c *cluster) dearestFirst(k *candidate) []sharding.Group {
	rows, groups := k.rows(), c.shareGroups(k)
	took := map[plan.LayerRange]schedule.Nanos{}
	for _, g := range groups {
		took[g.Layers[0]] = c.site.Exchange(rows, g.Layers)
	}
	slices.SortStableFunc(groups, func(a, b sharding.Group) int { return cmp.Compare(took[b.Layers[0]], took[a.Layers[0]]) })
	return slices.DeleteFunc(groups, func(g sharding.Group) bool { return !g.Among(k.sharded) })
}

// passes is what a candidate's pipelines take.
func (k *candidate) passes() schedule.Nanos { return k.estimate - k.job.Tail() }

// resharded is a candidate with the optimizer state of other layers in parts. Errors wrap
// ErrNoFit.
func (c *cluster) resharded(k *candidate, layers plan.LayerRanges) (*candidate, error) {
	return c.rekept(k, layers, k.away)
}

// rekept is a candidate with other layers in parts, and other units that keep their optimizer
// state in host memory. Errors wrap ErrNoFit.
func (c *cluster) rekept(k *candidate, layers plan.LayerRanges, away []bool) (*candidate, error) {
	out := &candidate{shape: k.shape, shares: k.shares, kept: k.kept, groups: k.groups, sharded: layers, away: away}
	for _, p := range k.pipes {
		pipe, err := c.of(out).newPipe(p.units, p.ends)
		if err != nil {
			return nil, c.noFit(p.units, err)
		}
		out.pipes = append(out.pipes, pipe)
	}
	return out, c.of(out).estimate(out)
}

// trimOffload has each unit of a candidate keep its optimizer state where the step is no longer
// with it there.
func (c *cluster) trimOffload(k *candidate) *candidate {
	simulated := k.simulated
	for u, away := range k.away {
		if !away {
			continue
		}
		fewer := slices.Clone(k.away)
		fewer[u] = false
		other, err := c.rekept(k, k.sharded, fewer)
		if err == nil && simulated {
			err = other.simulate()
		}
		if err == nil && other.step() <= k.step() {
			k = other
		}
	}
	return k
}
