package schedule

import (
	"fmt"
	"math"
	"slices"
)

// Split asks for the orders of forwards, input gradients and weight gradients in which a step of one replica ends
// first, one stage a worker. A micro-batch's activations are kept from its forward to its weight gradient.
//
// # The rule
//
// Within a stage forwards take micro-batches in ascending order, and so do both gradients: micro-batches are alike, so
// exchanging two of them changes no time. What is left to choose is which of the three comes next. Passes, messages and
// links only ever delay what follows them. So an order is at least as good as one that has the same pass later, and
// it suffices to look at active orders (Giffler and Thompson, 1960): of all passes that can begin, take the one that
// would end first, and its stage; one of the passes that can begin there before that end comes next. Moving a forward
// ahead past gradients alone never keeps more than the cap at which it could begin. Recomputing binds a stage to the input
// gradient that follows: it counts as one pass with that, and may come next on its stage before the gradient is known.
//
// Choose adds pass after pass. After as many passes, of two steps under way with the same counts the one that is
// nowhere earlier is dropped, and so is what cannot end before the best step so far. Where Width more are never left
// at once, all orders have been considered: the result is proven.
type Split struct {
	Costs  Costs
	Micros int
	// Caps limits by stage the micro-batches in flight; nil is no limit.
	Caps []int
	// Most is the longest makespan that is of use; 0 is any.
	Most Nanos
	// Width bounds the steps under way that are looked at together, at least 1.
	Width int
}

// Orders is how the stages of a Split run.
type Orders struct {
	Stages   []StageOrder
	Makespan Nanos
	// Peak counts by stage the most micro-batches in flight.
	Peak []int
	// Proven: no other orders within the caps end sooner.
	Proven bool
}

// ErrNoOrder is returned where no orders end within Split.Most.
var ErrNoOrder = fmt.Errorf("%w: no order of the passes ends in time", ErrBadShape)

// leanPart is how many times narrower the searches for less memory are.
const leanPart = 16

// Choose finds the orders that end first. Then it looks for as soon an end with fewer micro-batches in flight, on the first
// stage before the later ones, as far as narrow searches find it. Errors wrap ErrBadCosts or ErrBadShape.
func (p Split) Choose() (Orders, error) {
	if err := p.check(); err != nil {
		return Orders{}, err
	}
	var unused unusedRuns
	best, ok := p.quickest(&unused)
	if !ok {
		return Orders{}, ErrNoOrder
	}
	proven := best.Proven
	p.Most, p.Caps = best.Makespan, slices.Clone(best.Peak)
	for r := range p.Caps {
		for low := 1; low < best.Peak[r]; {
			p.Caps[r] = (low + best.Peak[r]) / 2
			if less, ok := p.search(max(1, p.Width/leanPart), p.Most+1, &unused); ok {
				best = less
			} else {
				low = p.Caps[r] + 1
			}
			p.Caps = slices.Clone(best.Peak)
		}
	}
	best.Proven = proven
	return best, nil
}

func (p Split) check() error {
	if err := p.Costs.check(); err != nil {
		return err
	}
	if p.Micros < 1 || p.Micros*len(p.Costs.Stages) > MaxOrdered {
		return fmt.Errorf("%w: orders of %d micro-batches on %d stages, want at most %d passes of a kind in all: take zb-h2 for more",
			ErrBadShape, p.Micros, len(p.Costs.Stages), MaxOrdered)
	}
	if p.Caps != nil && (len(p.Caps) != len(p.Costs.Stages) || slices.Min(p.Caps) < 1) {
		return fmt.Errorf("%w: caps %v for %d stages, want 1 or more for each", ErrBadShape, p.Caps, len(p.Costs.Stages))
	}
	return nil
}

// quickest returns the orders that end first. What a narrow search finds bounds a wide one.
func (p Split) quickest(unused *unusedRuns) (best Orders, ok bool) {
	below := Nanos(math.MaxInt64)
	if p.Most > 0 {
		below = p.Most + 1
	}
	for _, known := range p.usual() {
		if end, fits := p.follow(known); fits && end < below {
			best, ok, below = Orders{Stages: known, Makespan: end}, true, end
		}
	}
	for _, order := range best.Stages {
		best.Peak = append(best.Peak, order.peak())
	}
	for width := 1; ; width = min(8*width, p.Width) {
		found, better := p.search(width, below, unused)
		if better {
			best, ok, below = found, true, found.Makespan
		}
		if found.Proven || width >= p.Width {
			best.Proven = found.Proven
			return best, ok
		}
	}
}

// usual returns the orders of known schedules with one stage a worker.
func (p Split) usual() (all [][]StageOrder) {
	shape := Shape{Stages: len(p.Costs.Stages), Micros: p.Micros}
	elastic, err := Elastic(shape, p.Costs, p.Caps)
	if err == nil {
		all = append(all, elastic.Orders())
	}
	for _, make := range []func(Shape) (Schedule, error){
		ZBH1, ZBH2, GPipe,
		func(s Shape) (Schedule, error) { return Depth(s, 1) },
		func(s Shape) (Schedule, error) { return Depth(s, 2) },
		func(s Shape) (Schedule, error) { return KFKB(s, 2) },
		func(s Shape) (Schedule, error) { return TwoStage(s, 0) },
	} {
		if s, err := make(shape); err == nil {
			all = append(all, s.Orders())
		}
	}
	return all
}

// follow returns when orders end; not ok where they keep more than the caps or come to a stop.
func (p Split) follow(orders []StageOrder) (end Nanos, ok bool) {
	for s, order := range orders {
		if p.Caps != nil && order.peak() > p.Caps[s] {
			return 0, false
		}
	}
	s, err := Ordered(Shape{Stages: len(orders), Micros: p.Micros}, orders)
	if err != nil {
		return 0, false
	}
	s = WithRecompute(s, func(_ Replica, st Stage) bool { return p.Costs.Stages[st].Recompute > 0 })
	end, err = Makespan(s, Timing{Replicas: []Costs{p.Costs}})
	return end, err == nil
}

// Bound returns a time that no orders end before.
func (p Split) Bound() Nanos { return newSplitRun(p).bound(p) }

// search returns orders that end before a time, false where it finds none. Proven reports that there are no better
// ones.
func (p Split) search(width int, below Nanos, unused *unusedRuns) (best Orders, ok bool) {
	level, proven := []*splitRun{newSplitRun(p)}, true
	var next []*splitRun
	hashes := make([]uint64, 0, width) // of level
	for range p.passes() {
		next = next[:0]
		for _, run := range level {
			next = run.extend(p, below, next, unused)
		}
		unused.put(level...)
		slices.SortFunc(next, (*splitRun).compare)
		past := make([]pastPass, min(width, len(next)))
		level, hashes = level[:0], hashes[:0]
		for i, run := range next {
			hash := run.hash()
			dominated := false
			for k := 0; k < len(level) && !dominated; k++ {
				dominated = hashes[k] == hash && level[k].asFar(run) && level[k].dominates(run)
			}
			if dominated {
				unused.put(run)
				continue
			}
			if len(level) == width {
				proven = false
				unused.put(next[i:]...)
				break
			}
			step := &past[len(level)]
			*step = pastPass{run.past, run.op, run.stage}
			run.past = step
			level, hashes = append(level, run), append(hashes, hash)
		}
	}
	best.Proven = proven
	if len(level) == 0 {
		return best, false
	}
	unused.put(level...)
	end := level[0]
	best.Makespan = slices.Max(end.free)
	best.Stages = end.orders()
	for _, order := range best.Stages {
		best.Peak = append(best.Peak, order.peak())
	}
	return best, true
}

// passes counts those of a step.
func (p Split) passes() int {
	each := 3 * len(p.Costs.Stages)
	for _, t := range p.Costs.Stages {
		if t.Recompute > 0 {
			each++
		}
	}
	return each * p.Micros
}

// peak returns the most micro-batches in flight.
func (o StageOrder) peak() (most int) {
	live := 0
	for _, letter := range o {
		switch letter {
		case 'F':
			live++
		case 'W':
			live--
		}
		most = max(most, live)
	}
	return most
}
