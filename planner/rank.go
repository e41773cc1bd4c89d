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
	best = ranked[0]
	if s.in.Previous != nil {
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

// near returns the longest step that counts as nearly as good.
func near(step schedule.Nanos) schedule.Nanos { return step + step*nearPercent/100 }

// byStep prefers less time, then less state to move, then fewer devices.
func byStep(a, b *candidate) int {
	return cmp.Or(cmp.Compare(a.step(), b.step()), cmp.Compare(a.movedBytes, b.movedBytes), cmp.Compare(a.shape.devices(), b.shape.devices()))
}

// candidateKey distinguishes the candidates of one search.
type candidateKey struct {
	shape shape
	model *cost.Model
	pipes packed
}

// distinct drops candidates that were found before.
func distinct(found []*candidate) (out []*candidate) {
	known := map[candidateKey]bool{}
	for _, k := range found {
		key := candidateKey{shape: k.shape, model: k.model}
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

const (
	// improveTries bounds the neighbours that are made in one search; of more devices and layers there are fewer, as one takes
	// longer: improveWork is the product of all three.
	improveTries = 1 << 10
	improveWork  = 1 << 17
	// improveFrom is how many of the best candidates are improved of up to dropUpTo devices, of more only the best one.
	improveFrom = 3
)

// neighbourhood changes a candidate step by step for as long as its predicted step becomes shorter: a layer goes to the next stage,
// devices change places, another device takes a place, a stage is left out or added.
type neighbourhood struct {
	*search
	ctx  context.Context
	pool []int
	best *candidate
	left int
	seen map[packed]bool
}

// improve adds to ranked candidates what becomes of the best ones by small changes. Steps that are bounded by many messages or few
// micro-batches have no formula that says which order and cut is best.
func (s *search) improve(ctx context.Context, pool []int, ranked []*candidate) []*candidate {
	n := len(s.problem.devices)
	if !s.order.elastic() || n > settleUpTo {
		return ranked
	}
	from := 1
	if n <= dropUpTo {
		from = improveFrom
	}
	b := neighbourhood{search: s, ctx: ctx, pool: pool, left: min(improveTries, improveWork/(n*s.layers())), seen: map[packed]bool{}}
	for _, k := range slices.Clone(ranked[:min(from, len(ranked))]) {
		if !k.simulated {
			break
		}
		b.best = k
		for b.round() {
		}
		if b.best != k {
			ranked = append(ranked, b.best)
		}
	}
	slices.SortStableFunc(ranked, byStep)
	return ranked
}

// round tries the neighbours of the best candidate until one is better; it reports whether there was one.
func (b *neighbourhood) round() bool {
	k := b.best
	return b.shift(k) || b.reorder(k) || b.resize(k)
}

// shift moves one layer over a boundary of a single pipeline. Replicas keep their cuts: where these are alike, one goes on with the
// layers of another's lost node.
func (b *neighbourhood) shift(k *candidate) bool {
	if len(k.pipes) > 1 {
		return false
	}
	for at := range len(k.pipes[0].ends) - 1 {
		for _, by := range []int{-1, 1} {
			ends := slices.Clone(k.pipes[0].ends)
			ends[at] += by
			first := 0
			if at > 0 {
				first = ends[at-1]
			}
			if ends[at] > first && ends[at] < ends[at+1] && b.recut(k, ends) {
				return true
			}
		}
	}
	return false
}

// recut tries a single pipeline that is cut elsewhere.
func (b *neighbourhood) recut(k *candidate, ends []int) bool {
	devices := k.pipes[0].devices
	if !b.fresh(pack(devices) + pack(ends)) {
		return false
	}
	out := &candidate{shape: k.shape, order: k.order, model: k.model, pipes: slices.Clone(k.pipes)}
	p, err := b.cutter(out).pipe(devices, ends)
	if err != nil {
		return false
	}
	out.pipes[0] = p
	return b.estimate(out) == nil && b.take(out)
}

// reorder has two devices change places, and puts another one in the place of each.
func (b *neighbourhood) reorder(k *candidate) bool {
	order := k.devices()
	for i := range order {
		for j := i + 1; j < len(order); j++ {
			next := slices.Clone(order)
			next[i], next[j] = next[j], next[i]
			if b.try(k.shape, next) {
				return true
			}
		}
		for _, d := range b.pool {
			if !slices.Contains(order, d) {
				next := slices.Clone(order)
				next[i] = d
				if b.try(k.shape, next) {
					return true
				}
			}
		}
	}
	return false
}

// resize leaves a stage of a single pipeline out, puts one elsewhere, and adds one.
func (b *neighbourhood) resize(k *candidate) bool {
	t, order := b.in.Run.Train, k.devices()
	if k.shape.replicas > 1 {
		return false
	}
	for i := range order {
		fewer := slices.Delete(slices.Clone(order), i, i+1)
		if len(fewer) > 0 && t.Stages == 0 && b.try(shape{1, len(fewer)}, fewer) {
			return true
		}
		for at := range order {
			if b.try(k.shape, slices.Insert(slices.Clone(fewer), at, order[i])) {
				return true
			}
		}
	}
	if t.Stages > 0 || len(order) == b.layers() {
		return false
	}
	for _, d := range b.pool {
		for at := 0; at <= len(order) && !slices.Contains(order, d); at++ {
			if b.try(shape{1, len(order) + 1}, slices.Insert(slices.Clone(order), at, d)) {
				return true
			}
		}
	}
	return false
}

// try makes a candidate of devices in another order.
func (b *neighbourhood) try(sh shape, order []int) bool {
	if b.in.Run.CheckMessages(sh.stages) != nil || !b.fresh(pack([]int{sh.replicas})+pack(order)) {
		return false
	}
	k, err := b.arrange(sh, order)
	return err == nil && b.take(k)
}

// fresh reports whether a neighbour is new and may still be made.
func (b *neighbourhood) fresh(key packed) bool {
	if b.seen[key] || b.left <= 0 || b.ctx.Err() != nil {
		return false
	}
	b.seen[key] = true
	b.left--
	return true
}

// take keeps a candidate if its step is shorter than the best one's.
func (b *neighbourhood) take(k *candidate) bool {
	if worst := b.best.step() + b.best.step()*estimatePercent/100; k.estimate > worst || k.simulate() != nil || k.step() >= b.best.step() {
		return false
	}
	b.best = k
	return true
}
