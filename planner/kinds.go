package planner

import (
	"context"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/neighbours"
	"pnode/planner/plan"
)

const (
	// Other kinds than 1F1B are looked for with one candidate each of up to kindShapes shapes.
	kindShapes = 3
	// kindGainPercent is how much shorter than the best step of 1F1B a step of another kind has to be, changeKindPercent how
	// much shorter than one of the kind in force: predictions of near-equal kinds are not good enough to choose between them.
	kindGainPercent   = 1
	changeKindPercent = 3
	// kindActions bounds the passes of a step that is timed in each kind: of longer ones filling and draining are a small part.
	kindActions = 1 << 12
	// Cuts and orders that suit other kinds are looked for where all devices have at most walkActions passes, at most kindTries of
	// them, with walkWork passes in all.
	walkActions = 1 << 9
	kindTries   = 1 << 8
	walkWork    = 1 << 14
)

// fixedKinds are the schedules that follow from a shape alone and may take the place of 1F1B. Groups are searched, and so are orders of
// one stage a device, which is what all other kinds have: of these there are those that need no search. What has several copies of the
// model on its devices is for runs that ask for it, and so is what cuts sequences: devices are slower with short ones.
var fixedKinds = []schedule.Spec{{Kind: "zb-h1"}, {Kind: "zb-h2"}, {Kind: "zb-v"}, {Kind: "v-half"}, {Kind: "v-min"}, {Kind: "hanayo"}}

// chosen reports whether a plan has a kind of schedule that the planner chose in place of 1F1B.
func (s *search) chosen(p plan.Plan) bool {
	spec, err := schedule.ParseSpec(p.Schedule)
	return err == nil && (s.order.open && spec.Kind != plan.ScheduleName || s.order.split && spec.Kind == splitKind)
}

// inForce returns the schedule of the plan in force where the run leaves that to the planner.
func (s *search) inForce() (spec schedule.Spec, known bool) {
	if s.in.Previous == nil || !s.order.open && !s.order.split {
		return spec, false
	}
	spec, err := schedule.ParseSpec(s.in.Previous.Schedule)
	return spec, err == nil
}

// kindSearch looks for kinds of schedules that suit what has been cut in 1F1B.
type kindSearch struct{ *search }

// withKinds adds to ranked candidates some of the same devices and layers under other kinds of schedules, where a step is the
// shorter for it: where micro-batches are few, filling and draining are most of a step, and what follows it differs too, as some
// kinds have the first and the last layer on one device. In a run that asks for split backwards these alone are tried.
func (s kindSearch) withKinds(ctx context.Context, ranked []*candidate) []*candidate {
	if !s.order.open && !s.order.split {
		return ranked
	}
	plain := ranked[0].step()
	enough := plain - plain*kindGainPercent/100
	if s.order.split {
		enough = plain
	}
	reach := enough
	if n := len(s.problem.devices); s.order.open && n <= dropUpTo && s.passes(n) <= walkActions {
		reach = plain + plain*estimatePercent/100
	}
	var others []*candidate
	tried := map[shape]bool{}
	for _, k := range ranked {
		if ctx.Err() != nil {
			break // the caller drops what has been found
		}
		if tried[k.shape] || len(tried) >= kindShapes {
			continue
		}
		other, looked := s.otherKind(k, reach)
		if looked {
			tried[k.shape] = true
		}
		if other != nil {
			others = append(others, other)
		}
		if two := s.twoEach(k); two != nil && s.order.open {
			if other, _ := s.otherKind(two, reach); other != nil {
				others = append(others, other)
			}
		}
	}
	slices.SortStableFunc(others, byStep)
	if len(others) > 0 && reach > enough {
		others = append(others, s.walkKinds(ctx, others[0]))
	}
	others = slices.DeleteFunc(others, func(k *candidate) bool { return k.step() > enough })
	if now, known := s.inForce(); known && now.Kind != plan.ScheduleName {
		for _, k := range ranked {
			if !k.kept {
				continue
			}
			if same := s.inKind(k, now); same != nil {
				others = append(others, same)
			}
		}
	}
	all := append(others, ranked...)
	slices.SortStableFunc(all, byStep)
	return all
}

// twoEach returns a pipeline with two layers or more on each device where a candidate has less, for kinds of two chunks; nil where it
// has as many, or the model has not.
func (s kindSearch) twoEach(k *candidate) *candidate {
	n := k.shape.stages
	if len(k.pipes) != 1 || 2*n > s.layers() || slices.Min(k.pipes[0].lengths()) > 1 {
		return nil
	}
	a := k.arrangement()
	a.Ends = slices.Clone(a.Ends)
	for i := range n - 1 {
		a.Ends[i] = max(a.Ends[i], 2*(i+1))
		if i > 0 {
			a.Ends[i] = max(a.Ends[i], a.Ends[i-1]+2)
		}
	}
	for i := n - 2; i >= 0; i-- {
		a.Ends[i] = min(a.Ends[i], a.Ends[i+1]-2)
	}
	two, err := s.arranged(k, a)
	if err != nil {
		return nil
	}
	return two
}

// passes counts the passes of a step on so many stages.
func (p *problem) passes(stages int) int { return 2 * p.in.Run.Train.Micros * stages }

// otherKind returns a candidate's devices and layers under the schedule of the shortest step other than 1F1B, nil where none takes
// so little as most. looked reports whether more than a bound was needed to know.
func (s kindSearch) otherKind(k *candidate, most schedule.Nanos) (best *candidate, looked bool) {
	if k.shape.stages < 2 {
		return nil, false
	}
	take := func(other *candidate) {
		looked = true
		if other != nil && other.step() <= most {
			best, most = other, other.step()-1
		}
	}
	last := 1
	if s.order.open {
		last = maxChunks
		for _, spec := range fixedKinds {
			if s.passes(k.shape.stages*spec.Chunks()) <= kindActions && leastPasses(k) <= most {
				take(s.inKind(k, spec))
			}
		}
	}
	for chunks := 1; chunks <= last && slices.Max(k.shares) == slices.Min(k.shares); chunks++ { // one list has to suit every replica
		p, ok := s.interleaving(k, chunks)
		if !ok || s.passes(len(p.Costs.Stages)) > groupActions {
			break
		}
		if orderBound(p) <= most {
			take(s.fitGroups(k, p))
		}
	}
	if best != nil && !k.simulated && k.simulate() != nil {
		return nil, looked // the reason names the step that the other kind replaces
	}
	return best, looked
}

// walkKinds returns what becomes of a candidate by small changes of its cut and order, each with the schedule that follows from its
// shape alone and suits the first one best, then with the best of all.
func (s kindSearch) walkKinds(ctx context.Context, from *candidate) *candidate {
	var at *candidate
	for _, spec := range fixedKinds {
		if k := s.inKind(from.instead, spec); k != nil && (at == nil || k.step() < at.step()) {
			at = k
		}
	}
	if at == nil {
		return from
	}
	w := neighbours.Walk{
		Pool: from.devices(), FewestStages: from.shape.stages, MostStages: from.shape.stages,
		Left: min(kindTries, walkWork/s.passes(from.shape.devices())),
	}
	w.Try = func(a neighbours.Arrangement) (neighbours.Arrangement, bool) {
		if ctx.Err() != nil {
			return a, false
		}
		plain, err := s.arranged(at.instead, a)
		if err != nil {
			return a, false
		}
		k := s.inKind(plain, at.order.spec)
		if k == nil || k.step() >= at.step() {
			return a, false
		}
		at = k
		return k.arrangement(), true
	}
	w.From(at.arrangement())
	if best, _ := s.otherKind(at.instead, from.step()); best != nil {
		return best
	}
	return from
}

// leastPasses returns a time that no order of a candidate's passes ends before.
func leastPasses(k *candidate) (least schedule.Nanos) {
	for r, p := range k.pipes {
		for _, t := range p.Costs.Stages {
			least = max(least, schedule.Nanos(k.shares[r])*(t.Forward+t.Input+t.Weight))
		}
	}
	return least
}

// inKind returns a candidate's devices and layers under another schedule, nil where that cannot be or memory lacks for it.
func (s kindSearch) inKind(k *candidate, spec schedule.Spec) *candidate {
	other := &candidate{
		shape: k.shape, order: ordering{spec: spec, copies: 1}, model: k.model, pipes: k.pipes, shares: k.shares, kept: k.kept, instead: k,
	}
	if s.timed(other) != nil || !k.simulated && k.simulate() != nil {
		return nil
	}
	return other
}
