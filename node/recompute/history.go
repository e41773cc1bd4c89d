package recompute

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"

	"pnode/node/ledger"
	"pnode/planner/plan"
)

// History holds what the log of a run says.
type History struct {
	Run plan.RunSpec
	// Plans are in the order of their generations.
	Plans []plan.Plan
	// Outer has the outer steps of plans with local steps, in order.
	Outer map[plan.Generation][]plan.Merged
	// Committed has the losses of the steps that all replicas made together.
	Committed map[ledger.Position]ledger.Commit
	// Kinds has the kinds of devices that made steps of a plan's worker, sorted. Nothing is known of workers that are not in it.
	Kinds map[Part][]string
	names map[plan.PeerID]string
}

// Part is a worker's part in a generation.
type Part struct {
	plan.Generation
	plan.WorkerID
}

// FromLedgers returns what ledgers of a run's nodes say together. They must agree.
func FromLedgers(run plan.RunSpec, all []ledger.Contents) (History, error) {
	h := History{Run: run, Outer: map[plan.Generation][]plan.Merged{}, Committed: map[ledger.Position]ledger.Commit{}, Kinds: map[Part][]string{}, names: map[plan.PeerID]string{}}
	for _, c := range all {
		h.names[c.Head.Peer] = c.Head.Name
		for _, p := range c.Plans {
			if err := h.planned(p.Plan); err != nil {
				return History{}, err
			}
		}
		for _, o := range c.Outer {
			if err := h.merged(o.Merged); err != nil {
				return History{}, err
			}
		}
		for _, e := range c.Entries {
			h.computed(*e.Work)
			at := ledger.Position{Generation: e.Work.Generation, Step: e.Step}
			if known, ok := h.Committed[at]; ok && e.Work.Replica == nil && known != e.Commit {
				return History{}, fmt.Errorf("recompute: ledgers have different losses of step %d of generation %d", at.Step, at.Generation)
			}
			if e.Work.Replica == nil {
				h.Committed[at] = e.Commit
			}
		}
	}
	slices.SortFunc(h.Plans, func(a, b plan.Plan) int { return cmp.Compare(a.Generation, b.Generation) })
	for _, outer := range h.Outer {
		slices.SortFunc(outer, func(a, b plan.Merged) int { return cmp.Compare(a.From, b.From) })
	}
	return h, nil
}

// computed takes in the kind of device that did a work.
func (h *History) computed(w ledger.Work) {
	part := Part{w.Generation, w.Worker}
	if at, known := slices.BinarySearch(h.Kinds[part], w.Kind); !known && w.Kind != "" {
		h.Kinds[part] = slices.Insert(h.Kinds[part], at, w.Kind)
	}
}

// nameOf returns the name that a node has in its ledger, or its short ID.
func (h History) nameOf(p plan.PeerID) string { return cmp.Or(h.names[p], p.Short()) }

func (h *History) planned(p plan.Plan) error {
	i := slices.IndexFunc(h.Plans, func(q plan.Plan) bool { return q.Generation == p.Generation })
	if i < 0 {
		h.Plans = append(h.Plans, p)
	} else if !reflect.DeepEqual(h.Plans[i], p) {
		return fmt.Errorf("recompute: ledgers have different plans of generation %d", p.Generation)
	}
	return nil
}

func (h *History) merged(m plan.Merged) error {
	known := h.Outer[m.Generation]
	i := slices.IndexFunc(known, func(o plan.Merged) bool { return o.From == m.From })
	if i < 0 {
		h.Outer[m.Generation] = append(known, m)
	} else if !reflect.DeepEqual(known[i], m) {
		return fmt.Errorf("recompute: ledgers have different outer steps after step %d of generation %d", m.From, m.Generation)
	}
	return nil
}

// check returns an error where a plan cannot have had its outer steps.
func (h History) check(p plan.Plan) error {
	at := p.Start
	for _, m := range h.Outer[p.Generation] {
		if p.Local == nil || len(m.Parts) != len(p.Replicas) || m.From < at || m.To <= m.From || len(m.Counted()) == 0 {
			return fmt.Errorf("recompute: generation %d has an outer step of steps %d to %d, which its plan cannot have", p.Generation, m.From+1, m.To)
		}
		at = m.To
	}
	return nil
}

// ends returns the step that a plan is carried out to: of local steps the last outer one, else where the next plan begins.
func (h History) ends(i int, to plan.Step) plan.Step {
	p := h.Plans[i]
	switch outer := h.outer(p, to); {
	case p.Local != nil && len(outer) == 0:
		return p.Start
	case p.Local != nil:
		return outer[len(outer)-1].To
	case i+1 < len(h.Plans):
		return min(to, h.Plans[i+1].Start)
	}
	return to
}

// outer returns a plan's outer steps up to a step.
func (h History) outer(p plan.Plan, to plan.Step) (made []plan.Merged) {
	for _, m := range h.Outer[p.Generation] {
		if m.To <= to {
			made = append(made, m)
		}
	}
	return made
}

// steps counts what is made up to a step, each replica's inner steps too.
func (h History) steps(to plan.Step) (n int) {
	for i, p := range h.Plans {
		if p.Local == nil {
			n += int(max(p.Start, h.ends(i, to)) - p.Start)
		}
		for _, m := range h.outer(p, to) {
			for _, part := range m.Parts {
				n += int(part.Steps)
			}
		}
	}
	return n
}

// wanted returns the steps whose states plans begin with, or that are asked for.
func (h History) wanted(to plan.Step) map[plan.Step]bool {
	wanted := map[plan.Step]bool{to: true}
	for _, p := range h.Plans {
		wanted[p.Start] = true
		for _, pipe := range p.Replicas {
			if pipe.Own != nil {
				wanted[pipe.Own.Step] = true
			}
		}
	}
	return wanted
}
