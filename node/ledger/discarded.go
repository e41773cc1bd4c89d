package ledger

import (
	"maps"
	"slices"

	"pnode/planner/plan"
)

// settle returns the nodes with what each gave up dealt with. A plan that nobody holds to any more is of a lineage that is over: its steps
// are discarded. One that a ledger holds to counts with everybody, so that no member hides what it did in it.
func (a *audit) settle(nodes []Node) []Node {
	held := map[plan.Hash]bool{} // by digests, which the generation goes into
	for _, n := range nodes {
		for _, p := range n.Plans {
			held[digestOf(p.Plan)] = true
		}
	}
	nodes = slices.Clone(nodes)
	for i := range nodes {
		n := &nodes[i]
		n.Steps = Steps{slices.Clip(n.Plans), slices.Clip(n.Entries), slices.Clip(n.Told), slices.Clip(n.Outer)}
		for _, s := range n.GivenUp {
			over := map[plan.Generation]*Discarded{}
			for _, p := range s.Plans {
				if held[digestOf(p.Plan)] {
					n.Plans = append(n.Plans, p)
				} else {
					over[p.Plan.Generation] = &Discarded{Node: n.name(), Generation: p.Plan.Generation}
				}
			}
			for _, e := range s.Entries {
				if d := over[e.Work.Generation]; d == nil {
					n.Entries = append(n.Entries, e)
				} else if d.Last = max(d.Last, e.Step); d.First == 0 || e.Step < d.First {
					d.First = e.Step
				}
			}
			for _, t := range s.Told {
				if over[t.Generation] == nil {
					n.Told = append(n.Told, t)
				}
			}
			for _, o := range s.Outer {
				if over[o.Generation] == nil {
					n.Outer = append(n.Outer, o)
				}
			}
			for _, g := range slices.Sorted(maps.Keys(over)) {
				if d := over[g]; d.Last > 0 {
					a.Discarded = append(a.Discarded, *d)
				}
			}
		}
	}
	return nodes
}

// gaveUp reports whether the node gave up a plan of a generation: what its folder has of that one may be from before.
func (c Contents) gaveUp(g plan.Generation) bool {
	return slices.ContainsFunc(c.GivenUp, func(s Steps) bool {
		return slices.ContainsFunc(s.Plans, func(p Planned) bool { return p.Plan.Generation == g })
	})
}
