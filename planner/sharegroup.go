package planner

import (
	"cmp"
	"slices"

	"pnode/pipeline/schedule"
)

// shareGroup are layers whose holders are the same stages in every replica: what they hold in
// parts is decided for them together, and apart from the others. Replicas that are cut alike
// have one for each stage; the two ends of a tied embedding are of one group.
type shareGroup struct {
	layers []LayerRange
	cells  []cell // the stages that hold them, of all replicas
}

// shareGroups are a candidate's, in the order of layers.
func (c *cluster) shareGroups(k *candidate) []shareGroup {
	rows := k.rows()
	var groups []shareGroup
	first := 0
	for end := 1; end <= c.layers(); end++ {
		if !slices.ContainsFunc(rows, func(row []cell) bool { return !endsAt(row, end) }) {
			groups = append(groups, shareGroup{layers: []LayerRange{{first, end}}, cells: cellsIn(rows, first, end)})
			first = end
		}
	}
	if last := len(groups) - 1; last > 0 && c.in.Run.Model.TiedGradLen() > 0 {
		groups[0].layers = with(groups[0].layers, groups[last].layers, c.layers())
		groups[0].cells = append(groups[0].cells, groups[last].cells...)
		groups = groups[:last]
	}
	return groups
}

func endsAt(row []cell, end int) bool {
	return slices.ContainsFunc(row, func(at cell) bool { return at.end == end })
}

func cellsIn(rows [][]cell, first, end int) (cells []cell) {
	for _, row := range rows {
		for _, at := range row {
			if first <= at.first && at.end <= end {
				cells = append(cells, at)
			}
		}
	}
	return cells
}

// trimSharing has the replicas of a candidate hold the optimizer state of a group in parts only
// where with the whole its pipelines would take longer or not fit, something would be computed
// again, or updates would take a part of the step that counts: a checkpoint brings parts
// together.
func (c *cluster) trimSharing(k *candidate) *candidate {
	if len(k.sharded) == 0 || c.in.Run.Train.Shard == ShardOn {
		return k
	}
	simulated, most := k.simulated, near(k.step())
	for _, g := range c.dearestFirst(k) {
		other, err := c.resharded(k, without(k.sharded, g.layers, c.layers()))
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
func (c *cluster) dearestFirst(k *candidate) []shareGroup {
	rows, groups := k.rows(), c.shareGroups(k)
	took := map[LayerRange]schedule.Nanos{}
	for _, g := range groups {
		took[g.layers[0]] = c.exchangeTime(rows, g.layers)
	}
	slices.SortStableFunc(groups, func(a, b shareGroup) int { return cmp.Compare(took[b.layers[0]], took[a.layers[0]]) })
	return slices.DeleteFunc(groups, func(g shareGroup) bool { return !g.sharded(k) })
}

// passes is what a candidate's pipelines take.
func (k *candidate) passes() schedule.Nanos { return k.estimate - k.job.Tail() }

// resharded is a candidate with the optimizer state of other layers in parts. Errors wrap
// ErrNoFit.
func (c *cluster) resharded(k *candidate, layers []LayerRange) (*candidate, error) {
	return c.rekept(k, layers, k.away)
}

// rekept is a candidate with other layers in parts, and other units that keep their optimizer
// state in host memory. Errors wrap ErrNoFit.
func (c *cluster) rekept(k *candidate, layers []LayerRange, away []bool) (*candidate, error) {
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

// with are the layers of either ranges.
func with(ranges, others []LayerRange, layers int) []LayerRange {
	in := make([]bool, layers)
	for l := range in {
		in[l] = contains(ranges, l) || contains(others, l)
	}
	return joinLayers(in)
}

// without are the layers of the first ranges that are not in the others.
func without(ranges, others []LayerRange, layers int) []LayerRange {
	in := make([]bool, layers)
	for l := range in {
		in[l] = contains(ranges, l) && !contains(others, l)
	}
	return joinLayers(in)
}

// sharded tells whether a candidate's replicas hold the group's optimizer state in parts.
func (g shareGroup) sharded(k *candidate) bool { return contains(k.sharded, g.layers[0].First) }
