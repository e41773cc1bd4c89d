package elastic

import (
	"cmp"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
)

const (
	// composeUpTo is the number of micro-batches up to which unequal groups are looked for.
	composeUpTo = 16
	// maxNodes bounds the lists of groups that are timed as far as they are known, unless a
	// problem says otherwise.
	maxNodes = 1 << 19
	maxDepth = 16
)

// Interleaving is a pipeline whose workers hold several stages each: stage s is on worker s
// modulo the workers.
type Interleaving struct {
	Workers, Micros int
	// Costs has all stages, a multiple of Workers.
	Costs schedule.Costs
	// Caps limits by worker the activations of a stage and a micro-batch that fit at once; nil is
	// no limit.
	Caps []int
	// Most is the longest makespan that is of use; 0 is any.
	Most schedule.Nanos
	// Nodes bounds the work: how many lists of groups may be timed as far as they are known; 0
	// is usual.
	Nodes int
}

// GroupsKind names the kind of schedules that have groupings.
const GroupsKind = "interleaved"

// Grouping is how micro-batches go together through the chunks of an interleaved pipeline.
type Grouping struct {
	Depth             int
	Forward, Backward []int
	Makespan          schedule.Nanos
	// Peak counts by worker the most activations kept at once.
	Peak []int
	// Proven: no other grouping of any depth ends sooner.
	Proven bool
}

// Spec names the schedule for a plan.
func (g Grouping) Spec(p Interleaving) schedule.Spec {
	return schedule.Spec{Kind: GroupsKind, Params: []schedule.Param{
		{Name: "v", Values: []int{len(p.Costs.Stages) / p.Workers}},
		{Name: "d", Values: []int{g.Depth}},
		{Name: "f", Values: g.Forward},
		{Name: "b", Values: g.Backward},
	}}
}

// ChooseGroups finds the grouping that ends first within the caps; of equals the one that keeps
// least. Of up to 16 micro-batches it goes through all pairs of forward and backward groups
// (PipeMesh, TPDS 2025) except those that a bound rules out; Proven reports whether it
// came to the end within p.Nodes. Of more micro-batches it tries equal groups.
func ChooseGroups(p Interleaving) (Grouping, error) {
	stages := len(p.Costs.Stages)
	if p.Workers < 2 || stages == 0 || stages%p.Workers != 0 || stages == p.Workers || len(p.Costs.Boundaries) != stages-1 || p.Micros < 1 || (p.Caps != nil && len(p.Caps) != p.Workers) {
		return Grouping{}, fmt.Errorf("%w: %d stages with %d boundaries on %d workers with %d caps, want several stages on each of 2 workers or more, and a cap for each", ErrBadProblem, stages, len(p.Costs.Boundaries), p.Workers, len(p.Caps))
	}
	s := newGroupSearch(p, cmp.Or(p.Nodes, maxNodes))
	proven := s.all()
	if s.best.Depth == 0 {
		return Grouping{}, fmt.Errorf("elastic: no grouping of %d micro-batches keeps within %v activations and %d ns; recompute, or hold fewer stages on a worker", p.Micros, p.Caps, p.Most)
	}
	best := s.best
	best.Proven = proven
	for { // the same with less memory
		p.Most, p.Caps = best.Makespan, slices.Repeat([]int{slices.Max(best.Peak) - 1}, p.Workers)
		for w := range s.p.Caps {
			p.Caps[w] = min(p.Caps[w], s.p.Caps[w])
		}
		less := newGroupSearch(p, min(s.nodes, maxNodes/8))
		less.first = true
		if less.all(); less.best.Depth == 0 {
			return best, nil
		}
		s.nodes = less.nodes
		less.best.Proven = proven
		best = less.best
	}
}

// all looks at every depth, equal groups first; false when it did not come to the end.
func (s *groupSearch) all() bool {
	for depth := 1; depth <= s.p.deepest(); depth++ {
		for size := 1; size <= s.p.Micros; size += max(1, size/4) {
			if s.nodes <= 0 {
				return false
			}
			groups := equalGroups(s.p.Micros, size)
			s.try(depth, groups, groups)
		}
	}
	least := s.p.Bound()
	if s.best.Makespan <= least || s.p.Micros > composeUpTo {
		return s.best.Makespan <= least
	}
	for depth := 1; depth <= s.p.deepest(); depth++ {
		if s.depth = depth; !s.extend(newGroupRun(s.p), 0) {
			return false // it had to stop before the end
		}
		if s.best.Makespan <= least {
			break
		}
	}
	return true
}

// deepest returns the depth after which nothing is left to hide: the slowest round trip between
// neighbours over what a worker computes meanwhile, and one.
func (p Interleaving) deepest() int {
	var round, busy schedule.Nanos
	for _, b := range p.Costs.Boundaries {
		round = max(round, b.Activation.Transfer+b.Activation.Latency+b.Gradient.Transfer+b.Gradient.Latency)
	}
	for _, s := range p.Costs.Stages {
		busy = max(busy, s.Micro())
	}
	return int(min(maxDepth, 2+round/max(busy, 1)))
}

// equalGroups returns as many groups as have at least size. The rest makes the first ones larger
// by one: it would be too small alone, and the warm-up of a worker counts with the first.
func equalGroups(micros, size int) []int {
	count := micros / size
	groups := slices.Repeat([]int{micros / count}, count)
	for i := range micros % count {
		groups[i]++
	}
	return groups
}

// Bound returns a time that no grouping ends before: the chunks of each worker from any one on, and
// each link, wait for the first micro-batch, have all of them to do, and then the last one still
// has to go back to the first stage.
func (p Interleaving) Bound() schedule.Nanos {
	heads, tails := p.ways()
	last := len(p.Costs.Stages) - 1
	turn := heads[last] + p.Costs.Stages[last].Forward + p.backward(last)
	bound, micros := schedule.Nanos(0), schedule.Nanos(p.Micros)
	for w := range p.Workers {
		var busy, forth, back schedule.Nanos
		top := w
		for s := last + 1 - p.Workers + w; s >= 0; s -= p.Workers {
			busy += micros * (p.Costs.Stages[s].Forward + p.backward(s))
			bound = max(bound, heads[s]+busy+tails[s])
			if s < last {
				forth, back, top = forth+p.Costs.Boundaries[s].Activation.Transfer, back+p.Costs.Boundaries[s].Gradient.Transfer, max(top, s)
			}
		}
		// The first activation on the link after w is stage w's; after the last one, which at
		// best is the top stage's, comes the way to the end and all the way back.
		bound = max(bound, heads[w]+p.Costs.Stages[w].Forward+micros*forth+
			turn-(heads[top]+p.Costs.Stages[top].Forward+p.Costs.Boundaries[top].Activation.Transfer)+tails[last])
		// The first gradient on the link back to w is at best for the top stage.
		hop := p.Costs.Boundaries[top].Gradient
		bound = max(bound, turn+tails[last]-tails[top]-p.backward(top)-hop.Transfer-hop.Latency+
			micros*back+p.Costs.Boundaries[w].Gradient.Latency+p.backward(w)+tails[w])
	}
	return bound
}

// ways returns by stage the time of a micro-batch alone from the start to its forward, and from the
// end of its backward to the end of stage 0's.
func (p Interleaving) ways() (heads, tails []schedule.Nanos) {
	heads, tails = make([]schedule.Nanos, len(p.Costs.Stages)), make([]schedule.Nanos, len(p.Costs.Stages))
	for s, b := range p.Costs.Boundaries {
		heads[s+1] = heads[s] + p.Costs.Stages[s].Forward + b.Activation.Transfer + b.Activation.Latency
		tails[s+1] = tails[s] + p.backward(s) + b.Gradient.Transfer + b.Gradient.Latency
	}
	return heads, tails
}

// backward returns the time of a whole backward on a stage.
func (p Interleaving) backward(stage int) schedule.Nanos {
	return p.Costs.Stages[stage].Input + p.Costs.Stages[stage].Weight
}
