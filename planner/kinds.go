package planner

import (
	"context"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/neighbours"
	"pnode/planner/optimum"
	"pnode/planner/plan"
)

const (
	// Other kinds than 1F1B are looked for with one candidate each of up to kindShapes shapes, and those that follow from a shape alone
	// with those of more shapes that have kindWork passes in all.
	kindShapes = 3
	kindWork   = 1 << 11
	// kindSets is how many sets of devices of a shape are looked at in kinds that follow from a shape alone.
	kindSets = 4
	// kindGainPercent is how much shorter than the best step of 1F1B a step of another kind has to be, changeKindPercent how
	// much shorter than one of the kind in force: predictions of near-equal kinds are not good enough to choose between them.
	kindGainPercent   = 1
	changeKindPercent = 3
	// kindActions bounds the passes of a step that is timed in each kind: of longer ones filling and draining are a small part.
	kindActions = 1 << 12
	// Cuts, orders and devices that suit other kinds are looked for from the best candidates of up to walkShapes shapes of at most
	// walkActions passes, with walkWork passes in all.
	walkShapes  = 4
	walkActions = 1 << 11
	walkWork    = 1 << 16
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

// withKinds adds to ranked candidates, and a polished one if there is one, some of the same devices and layers under other kinds of schedules,
// where a step is the shorter for it: where micro-batches are few, filling and draining are most of a step, and what follows it differs
// too, as some kinds have the first and the last layer on one device. In a run that asks for split backwards these alone are tried.
func (s kindSearch) withKinds(ctx context.Context, ranked []*candidate, polished *candidate) []*candidate {
	for _, k := range ranked {
		s.postValidate(k)
	}
	timed := slices.IndexFunc(ranked, func(k *candidate) bool { return !k.simulated })
	if timed < 0 {
		timed = len(ranked)
	}
	slices.SortStableFunc(ranked[:timed], byStep)
	all := slices.Clone(ranked)
	if polished != nil {
		s.postValidate(polished)
		all = append(all, polished)
		slices.SortStableFunc(all, byStep)
	}
	if !s.order.open && !s.order.split {
		return all
	}
	plain := all[0].step()
	enough := plain - plain*kindGainPercent/100
	if s.order.split {
		enough = plain
	}
	walks := s.order.open && len(s.problem.devices) <= settleUpTo
	reach := enough
	if walks {
		reach = plain + plain*estimatePercent/100
	}
	others := s.ofShapes(ctx, ranked, enough, reach)
	if polished != nil { // beside the others: a better plan in 1F1B need not be better in other kinds
		others = append(others, s.ofShapes(ctx, []*candidate{polished}, enough, reach)...)
	}
	slices.SortStableFunc(others, byStep)
	if walks {
		most := enough
		if len(others) > 0 {
			most = min(most, others[0].step()-1)
		}
		others = append(others, s.lowestGroups(ctx, all, most)...)
		slices.SortStableFunc(others, byStep)
		budget := s.budget
		others = append(others, s.walkKinds(ctx, others)...)
		s.budget = budget // they have a bound of their own
	}
	others = slices.DeleteFunc(others, func(k *candidate) bool { return k.step() > enough })
	if now, known := s.inForce(); known && now.Kind != plan.ScheduleName {
		for _, k := range ranked {
			if !k.kept {
				continue
			}
			if same := s.inKind(k, now); same != nil && (k.simulated || k.simulate() == nil) {
				others = append(others, same)
			}
		}
	}
	all = append(others, all...)
	slices.SortStableFunc(all, byStep)
	return all
}

// otherDevices has by shape the devices of candidates.
type otherDevices map[shape][][]int

// of returns how many sets of devices candidates of a shape have had so far where this one's set is new, else 0.
func (o otherDevices) of(k *candidate) int {
	set := k.devices()
	slices.Sort(set)
	if slices.ContainsFunc(o[k.shape], func(known []int) bool { return slices.Equal(known, set) }) {
		return 0
	}
	o[k.shape] = append(o[k.shape], set)
	return len(o[k.shape])
}

// ofShapes returns the best one of each of the first shapes of ranked candidates under another kind of schedule, where its step is at most
// enough, or in reach of a walk. On other devices a shape that is longer in 1F1B may be shorter in another kind.
func (s kindSearch) ofShapes(ctx context.Context, ranked []*candidate, enough, reach schedule.Nanos) (others []*candidate) {
	tried, work, again := map[shape]bool{}, kindWork, kindWork
	look := func(k *candidate) (looked bool) {
		other, looked := s.fixedKind(k, reach)
		most := enough
		if other != nil {
			others, most = append(others, other), min(most, other.step()-1)
		}
		if len(tried) < kindShapes {
			if other, more := s.inGroups(k, most); more {
				if looked = true; other != nil {
					others = append(others, other)
				}
			}
		}
		return looked
	}
	elsewhere := otherDevices{}
	for _, k := range ranked {
		if ctx.Err() != nil {
			break // the caller drops what has been found
		}
		if sets := elsewhere.of(k); tried[k.shape] && sets > 1 && sets <= kindSets && again >= s.passes(k.shape.devices()) {
			if other, looked := s.fixedKind(k, reach); looked {
				if again -= s.passes(k.shape.devices()); other != nil {
					others = append(others, other)
				}
			}
			continue
		}
		if tried[k.shape] || len(tried) >= kindShapes && work < s.passes(k.shape.devices()) {
			continue
		}
		looked := look(k)
		if two := s.twoEach(k); two != nil && s.order.open {
			look(two)
		}
		if looked || len(tried) >= kindShapes {
			tried[k.shape] = true
			work -= s.passes(k.shape.devices())
		}
	}
	return others
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

// fixedKind returns a candidate's devices and layers under the schedule of the shortest step of those that follow from a shape alone, nil
// where none takes so little as most. looked reports whether more than a bound was needed to know.
func (s kindSearch) fixedKind(k *candidate, most schedule.Nanos) (best *candidate, looked bool) {
	if k.shape.stages < 2 || !s.order.open {
		return nil, false
	}
	for _, spec := range fixedKinds {
		if s.passes(k.shape.stages*spec.Chunks()) > kindActions || leastPasses(k) > most {
			continue
		}
		looked = true
		if other := s.inKind(k, spec); other != nil && other.step() <= most {
			best, most = other, other.step()-1
		}
	}
	if best != nil && !k.simulated && k.simulate() != nil {
		return nil, looked // the reason names the step that the other kind replaces
	}
	return best, looked
}

// walkKinds returns what becomes of candidates by small changes of their cut, order and devices, each with the schedule that follows
// from its shape alone and suits the first one best, then with the best of all. It begins from the first of each shape.
func (s kindSearch) walkKinds(ctx context.Context, others []*candidate) (found []*candidate) {
	work := walkWork / (2 * s.in.Run.Train.Micros) // a try takes a pass each way of each micro-batch on each device
	var best *candidate
	ended := false // where the walk to best ended no single change helps
	from := func(k *candidate, share int) {
		at, left := s.walkKind(ctx, k, share)
		if work -= share - max(0, left); at != k {
			found = append(found, at)
		}
		if best == nil || at.step() < best.step() {
			best, ended = at, left > 0
		}
	}
	tried := map[shape]bool{}
	for _, k := range others {
		if tried[k.shape] || len(tried) == walkShapes || s.passes(k.shape.devices()) > walkActions {
			continue
		}
		tried[k.shape] = true
		if at, _ := s.fixedKind(k.instead, math.MaxInt64); at != nil {
			from(at, work/4)
		}
	}
	if best == nil {
		return found
	}
	if !ended {
		from(best, work)
	}
	if k, _ := s.fixedKind(best.instead, best.step()-1); k != nil {
		found, best = append(found, k), k
	}
	if k, _ := s.inGroups(best.instead, best.step()-1); k != nil {
		found = append(found, k)
	}
	return slices.DeleteFunc(found, func(k *candidate) bool { return !k.instead.simulated && k.instead.simulate() != nil })
}

// walkKind returns what becomes of a candidate by small changes in its kind, and how much of its work is left.
func (s kindSearch) walkKind(ctx context.Context, at *candidate, work int) (*candidate, int) {
	pool := s.roomy()
	w, least := walker(s).walk(pool), optimum.NewFloor(s.planned(pool))
	w.FewestStages, w.KeepCuts, w.Left = max(w.FewestStages, 2), true, work
	w.Skip = func(a neighbours.Arrangement) bool {
		return a.Replicas == 1 && schedule.Nanos(s.in.Run.Train.Micros)*least.Slowest(a.Devices, a.Ends) >= at.step()
	}
	w.Try = func(a neighbours.Arrangement) (neighbours.Arrangement, bool) {
		if ctx.Err() != nil {
			return a, false
		}
		plain, err := s.arranged(at.instead, a)
		if err != nil || leastPasses(plain) >= at.step() {
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
	return at, w.Left
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
		shape: k.shape, order: ordering{spec: spec, copies: 1}, model: s.waitingModel(k), pipes: k.pipes, shares: k.shares, kept: k.kept, pinned: k.pinned, instead: k,
	}
	if s.timed(other) != nil {
		return nil
	}
	s.postValidate(other)
	return other
}
