package sharding

import (
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Group has layers whose holders are the same stages in every replica: what they hold in
// parts is decided for them together, and apart from the others. Replicas that are cut alike
// have one for each stage; the two ends of a tied embedding are of one group.
type Group struct {
	Layers plan.LayerRanges
	Stages []cost.Stage // the stages that hold them, of all replicas
}

// Groups returns the groups of a model of so many layers, whose ends are tied or not, in their order.
func Groups(rows cost.Rows, layers int, tied bool) []Group {
	var groups []Group
	first := 0
	for end := 1; end <= layers; end++ {
		g, whole := Group{Layers: plan.LayerRanges{{First: first, End: end}}}, true
		for _, row := range rows { // all of them have to end there
			ends := false
			for _, at := range row {
				if ends = ends || at.End == end; first <= at.First && at.End <= end {
					g.Stages = append(g.Stages, at)
				}
			}
			whole = whole && ends
		}
		if whole {
			groups, first = append(groups, g), end
		}
	}
	if last := len(groups) - 1; last > 0 && tied {
		groups[0].Layers = groups[0].Layers.With(groups[last].Layers, layers)
		groups[0].Stages = append(groups[0].Stages, groups[last].Stages...)
		groups = groups[:last]
	}
	return groups
}

// Among reports whether the group is among layers that are in parts.
func (g Group) Among(layers plan.LayerRanges) bool { return layers.Contains(g.Layers[0].First) }

// Freed returns by kind what every one of some stages frees at least with its layers in parts: by the
// costs with the optimizer state whole, and with it in so many parts.
func Freed(whole, parts *cost.Model, replicas int, on []cost.Stage) (least [Kinds]int64) {
	for i, at := range on {
		costs := whole.On(at.Device).Costs()
		freed := [Kinds]int64{
			OptimizerState: whole.Fixed(at.Device, at.First, at.End) - parts.Fixed(at.Device, at.First, at.End),
			Gradients:      freedOf(at, replicas, func(l int) int64 { return costs[l].ParamBytes - costs[l].FrozenBytes }),
			Parameters:     freedOf(at, replicas, func(l int) int64 { return costs[l].ParamBytes + costs[l].CopyBytes }),
		}
		for kind, bytes := range freed {
			if i == 0 || bytes < least[kind] {
				least[kind] = bytes
			}
		}
	}
	return least
}

// freedOf returns the bytes that a stage on one of so many replicas would not hold of something that
// layers have: all but its own part, and the one layer that is whole while it is in use.
func freedOf(at cost.Stage, replicas int, bytes func(layer int) int64) int64 {
	var sum, largest int64
	for l := at.First; l < at.End; l++ {
		sum, largest = sum+bytes(l), max(largest, bytes(l))
	}
	return max(0, sum-sum/int64(replicas)-largest)
}
