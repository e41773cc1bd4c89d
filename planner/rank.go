package planner

import (
	"cmp"
	"context"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

const (
	// Candidates whose estimate is within estimatePercent of the best simulated step are
	// simulated, at most as many as do simulateActions in all, at least one.
	estimatePercent = 12
	simulateActions = 1 << 19
	// nearPercent is how much longer a step may be that counts as nearly as good: of such plans
	// the one that moves the least state is taken.
	nearPercent = 2
	// simplePercent is how much longer a step of fewer replicas may be in a first plan of devices that are alike: profiles differ by
	// some percent from one measurement to the next, and such devices take turns at being the quicker one. They are alike up to
	// alikePercent between the slowest and the quickest.
	simplePercent, alikePercent = 1, 15
)

// rank simulates the best candidates and sorts: simulated ones first, the least time
// first. It drops what cannot be simulated; an error means that nothing could be.
func (s *search) rank(ctx context.Context, found []*candidate) ([]*candidate, error) {
	found = distinct(found)
	slices.SortStableFunc(found, func(a, b *candidate) int { return cmp.Compare(a.estimate, b.estimate) })
	var timed, rest []*candidate
	var err error
	best := schedule.Nanos(math.MaxInt64 / 200)
	for _, k := range found {
		if err := ended(ctx); err != nil {
			return nil, err
		}
		if !k.simulated {
			worth := k.estimate <= best+best*estimatePercent/100 && s.simulated < simulateActions
			if !worth && len(timed) > 0 && !k.kept {
				rest = append(rest, k)
				continue
			}
			s.simulated += 2 * s.in.Run.Train.Micros * k.shape.stages
			if fail := k.simulate(); fail != nil {
				err = cmp.Or(err, fail)
				continue
			}
		}
		timed = append(timed, k)
		best = min(best, k.step())
	}
	if len(timed) == 0 {
		return nil, err
	}
	slices.SortStableFunc(timed, byStep)
	return append(timed, rest...), nil
}

// choose takes one of the ranked candidates; others are the rest.
func (s *search) choose(ranked []*candidate) (best *candidate, others []*candidate) {
	if s.in.Previous == nil {
		best = simplest(ranked, s.devices)
	} else {
		best = s.hold(ranked)
		enough := near(best.step())
		for _, k := range ranked {
			closer := k.movedBytes < best.movedBytes || (k.kept && !best.kept && k.movedBytes == best.movedBytes)
			if k.simulated && k.step() <= enough && closer {
				best = k
			}
		}
	}
	others = slices.DeleteFunc(slices.Clone(ranked), func(k *candidate) bool { return k == best })
	slices.SortStableFunc(others, byStep)
	return best, others
}

// simplest returns the first of ranked candidates or, where all devices are alike, a nearly equal one of fewer replicas on no more of them:
// replicas take more memory, and what their exchange takes is known worse than what a pipeline waits for. So the same machines get the
// same plan, whichever of them was measured to be a little quicker today.
func simplest(ranked []*candidate, devices []device) *candidate {
	best := ranked[0]
	if !alike(devices) {
		return best
	}
	enough := best.step() + best.step()*simplePercent/100
	for _, k := range ranked[1:] {
		if k.simulated && k.step() <= enough && k.shape.replicas < best.shape.replicas && k.shape.devices() <= best.shape.devices() {
			best = k
		}
	}
	return best
}

// alike reports whether devices differ in speed by no more than what measurements of one device do.
func alike(devices []device) bool {
	speed := func(a, b device) int { return cmp.Compare(a.profile.MatMulFLOPS, b.profile.MatMulFLOPS) }
	least, most := slices.MinFunc(devices, speed).profile.MatMulFLOPS, slices.MaxFunc(devices, speed).profile.MatMulFLOPS
	return most-least <= most/100*alikePercent
}

// hold returns the first of ranked candidates, or the best one under the schedule in force where the first one gains too little on it.
func (s *search) hold(ranked []*candidate) *candidate {
	best := ranked[0]
	now, known := s.inForce()
	if !known || best.order.spec.Kind == now.Kind {
		return best
	}
	i := slices.IndexFunc(ranked, func(k *candidate) bool { return k.simulated && k.order.spec.Kind == now.Kind })
	if i >= 0 && (ranked[i].step()-best.step())*100 < ranked[i].step()*changeKindPercent {
		return ranked[i]
	}
	return best
}

// near returns the longest step that counts as nearly as good.
func near(step schedule.Nanos) schedule.Nanos { return step + step*nearPercent/100 }

// byStep prefers less time, then less state to move, then fewer devices.
func byStep(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.step(), b.step()), cmp.Compare(a.movedBytes, b.movedBytes), cmp.Compare(a.shape.devices(), b.shape.devices()))
}

// candidateKey distinguishes the candidates of one search.
type candidateKey struct {
	shape    shape
	model    *cost.Model
	schedule string
	pipes    packed
}

// distinct drops candidates that were found before.
func distinct(found []*candidate) (out []*candidate) {
	known := map[candidateKey]bool{}
	for _, k := range found {
		key := candidateKey{shape: k.shape, model: k.model, schedule: k.order.spec.String()}
		for _, p := range k.pipes {
			key.pipes += pack(p.devices) + pack(p.ends) + pack(p.Warmups)
		}
		if !known[key] {
			known[key] = true
			out = append(out, k)
		}
	}
	return out
}

// packed is a list of numbers below 2^24 as a value that can be a key.
type packed string

// pack returns numbers with their count in front.
func pack(numbers []int) packed {
	b := make([]byte, 0, 3*len(numbers)+3)
	for _, n := range append([]int{len(numbers)}, numbers...) {
		b = append(b, byte(n), byte(n>>8), byte(n>>16))
	}
	return packed(b)
}

// slower returns by how many per mille b exceeds a.
func slower(a, b schedule.Nanos) int64 { return int64(b-a) * 1000 / int64(max(a, 1)) }
