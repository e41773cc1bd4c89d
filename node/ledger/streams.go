package ledger

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"pnode/planner/plan"
)

// maxCounted bounds the steps that outer steps of a generation count.
const maxCounted = 1 << 26

// local reports whether replicas make local steps in a generation.
func (a *audit) local(g plan.Generation) bool { return a.plans[g].Plan.Local != nil }

// outer takes in an outer step that a node's log had.
func (a *audit) outer(o Outer, n Node) {
	where := Position{o.Generation, o.From}
	i := slices.IndexFunc(a.rounds[o.Generation], func(known Outer) bool { return known.From == o.From })
	if i < 0 {
		a.rounds[o.Generation], a.whose[where] = append(a.rounds[o.Generation], o), n.name()
		return
	}
	known := &a.rounds[o.Generation][i]
	if known.Before == nil || o.Before == nil { // which not all have seen
		before := cmp.Or(known.Before, o.Before)
		known.Before, o.Before = before, before
	}
	if !bytes.Equal(marshal(*known), marshal(o)) {
		a.problem("%s and %s have different outer steps after step %d of generation %d", a.whose[where], n.name(), o.From, o.Generation)
	}
}

// meet puts the outer steps of each generation in order, leaves out those that its plan cannot have, and notes the steps that they count.
func (a *audit) meet() {
	for _, g := range slices.Sorted(maps.Keys(a.rounds)) {
		p, at, steps := a.plans[g].Plan, plan.Step(0), plan.Step(0)
		slices.SortFunc(a.rounds[g], func(x, y Outer) int { return cmp.Compare(x.From, y.From) })
		a.rounds[g] = slices.DeleteFunc(a.rounds[g], func(o Outer) bool {
			wrong := p.Local == nil || len(o.Parts) != len(p.Replicas) || o.From < max(at, p.Start) || o.End-o.From > p.Local.Every || steps > maxCounted || a.micros(p, nil) != a.size.Micros
			if wrong {
				a.problem("%s has an outer step of steps %d to %d of generation %d, which its plan cannot have", a.whose[Position{g, o.From}], o.From+1, o.To, g)
				return true
			}
			at, steps = o.To, steps+o.To-o.From
			for s := o.From + 1; s <= o.To; s++ {
				a.steps[g] = append(a.steps[g], s)
			}
			return false
		})
	}
}

// active returns the replicas whose local steps count in a step; nil: all replicas made it together.
func (a *audit) active(p plan.Plan, s plan.Step) map[plan.Replica]bool {
	if p.Local == nil {
		return nil
	}
	active, rounds := map[plan.Replica]bool{}, a.rounds[p.Generation]
	i, _ := slices.BinarySearchFunc(rounds, s, func(o Outer, s plan.Step) int { return cmp.Compare(o.To, s) })
	if i == len(rounds) || rounds[i].From >= s {
		return active
	}
	for _, q := range rounds[i].Counted() {
		active[q] = s <= rounds[i].From+rounds[i].Parts[q].Steps
	}
	return active
}

// micros counts the micro-batches of active replicas, of all where that is nil; 0 where a plan's shares are none.
func (a *audit) micros(p plan.Plan, active map[plan.Replica]bool) (n int) {
	if p.Local == nil {
		return a.size.Micros
	}
	next := 0
	for r, pipe := range p.Replicas {
		if int(pipe.FirstMicro) != next || pipe.Micros < 1 || pipe.Micros > a.size.Micros {
			return 0
		}
		next += pipe.Micros
		if active == nil || active[plan.Replica(r)] {
			n += pipe.Micros
		}
	}
	return n
}

// has reports whether a micro-batch of a step is an active replica's.
func (a *audit) has(p plan.Plan, active map[plan.Replica]bool, m int) bool {
	for r, pipe := range p.Replicas {
		if active[plan.Replica(r)] && int(pipe.FirstMicro) <= m && m < int(pipe.FirstMicro)+pipe.Micros {
			return true
		}
	}
	return false
}

// streams lays the samples of all steps that count side by side, where some came back from replicas with local steps: each is to be there
// once, or to be left for later steps.
func (a *audit) streams() {
	if !slices.ContainsFunc(a.Generations, func(g GenerationReport) bool { return plan.FollowsLocal(a.plans[g.Generation].Plan) }) {
		return
	}
	s := samples{audit: a}
	s.left = s.left.Full(0, a.size.Micros)
	for _, g := range a.Generations {
		p := a.plans[g.Generation].Plan
		if err := p.Stream.Validate(); err != nil || g.Last < p.Start || g.Last > maxStep {
			a.problem("the plan of generation %d takes samples that no run has", g.Generation)
			return
		}
		s.begin(p.Start, p.Stream.Full(p.Start, a.size.Micros), fmt.Sprintf("generation %d", g.Generation))
		if p.Local == nil {
			s.take(g.Last, []plan.MicroRange{{End: int64(g.Last-p.Start) * int64(a.size.Micros)}})
			continue
		}
		for _, o := range a.rounds[g.Generation] {
			if o.From >= g.Last {
				break
			}
			if !s.round(p, o) {
				return
			}
		}
	}
	s.judge()
}

// samples has which micro-batches of a run the steps up to one took, and what was left.
type samples struct {
	*audit
	at    plan.Step
	left  plan.Stream // in full
	taken []plan.MicroRange
}

// begin goes on at a step with what the log says is left there. What lies between is in no ledger.
func (s *samples) begin(at plan.Step, left plan.Stream, what string) {
	switch {
	case at == s.at && bytes.Equal(marshal(left), marshal(s.left)):
	case at == s.at:
		s.problem("%s begins with other samples than were left after step %d", what, at)
	default:
		s.taken = append(s.taken, gone(s.left, left)...) // by the word of the log
	}
	s.at, s.left = at, left
}

// take takes the samples in some places of what is left, which are in order, for the steps up to one.
func (s *samples) take(to plan.Step, places []plan.MicroRange) {
	for _, r := range places {
		s.taken = append(s.taken, numbers(s.left, r)...)
	}
	s.at, s.left = to, s.left.Without(places)
}

// round takes the blocks of the replicas that count in an outer step, as far as these came. It reports whether that is known.
func (s *samples) round(p plan.Plan, o Outer) bool {
	what := fmt.Sprintf("the round after step %d of generation %d", o.From, o.Generation)
	switch {
	case o.Before != nil:
		s.begin(o.From, *o.Before, what)
	case o.From != s.at:
		s.problem("no ledger has the samples that were left before %s: what its steps and later ones took is not proven", what)
		return false
	}
	var places []plan.MicroRange
	for _, q := range o.Counted() {
		first := p.Replicas[q].Block(o.End - o.From).First
		places = append(places, plan.MicroRange{First: first, End: first + int64(o.Parts[q].Steps)*int64(p.Replicas[q].Micros)})
	}
	s.take(o.To, places)
	if said := o.Stream.Full(o.To, s.size.Micros); !bytes.Equal(marshal(said), marshal(s.left)) {
		s.problem("after %s other samples are left than its replicas did not take", what)
		s.left = said
	}
	return true
}

// judge counts samples that entered twice, and those that neither entered nor are left.
func (s *samples) judge() {
	all := slices.Clone(s.taken)
	for _, r := range s.left.Given {
		s.Given += int(r.End-r.First) * s.size.MicroBatch
		all = append(all, r)
	}
	all = append(all, plan.MicroRange{First: s.left.Fresh, End: s.left.Fresh})
	slices.SortFunc(all, func(x, y plan.MicroRange) int { return cmp.Compare(x.First, y.First) })
	var doubled, lost int
	next := int64(0)
	for _, r := range all {
		lost += int(max(0, r.First-next))
		doubled += int(max(0, min(next, r.End)-r.First))
		next = max(next, r.End)
	}
	s.Lost, s.Doubled = s.Lost+lost*s.size.MicroBatch, s.Doubled+doubled*s.size.MicroBatch
	if lost+doubled > 0 {
		s.problem("of the samples that replicas took and gave back %d are lost, %d doubled", lost*s.size.MicroBatch, doubled*s.size.MicroBatch)
	}
}

// ranges returns what a stream has, up to a number.
func ranges(s plan.Stream, end int64) []plan.MicroRange {
	return append(slices.Clone(s.Given), plan.MicroRange{First: s.Fresh, End: max(end, s.Fresh)})
}

// numbers returns the micro-batches in a range of places of a full stream.
func numbers(s plan.Stream, places plan.MicroRange) (all []plan.MicroRange) {
	place := int64(0)
	for _, r := range ranges(s, math.MaxInt64) {
		first, end := r.First+max(0, places.First-place), min(r.End, r.First+max(0, places.End-place))
		if first < end {
			all = append(all, plan.MicroRange{First: first, End: end})
		}
		if r.End == math.MaxInt64 {
			break
		}
		place += r.End - r.First
	}
	return all
}

// gone returns what one stream has and another one, of later, has not.
func gone(before, after plan.Stream) (all []plan.MicroRange) {
	end := max(before.Fresh, after.Fresh)
	later := ranges(after, end)
	for _, r := range ranges(before, end) {
		for _, l := range later {
			if l.End <= r.First || l.First >= r.End {
				continue
			}
			if l.First > r.First {
				all = append(all, plan.MicroRange{First: r.First, End: l.First})
			}
			r.First = l.End
		}
		if r.First < r.End {
			all = append(all, r)
		}
	}
	return all
}
