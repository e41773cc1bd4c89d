package elastic

import (
	"math"
	"slices"

	"pnode/pipeline/schedule"
)

// groupSearch is a branch and bound over all pairs of lists of groups: it adds group after group
// to the list that runs out first, times what follows from them, and leaves those whose step
// cannot end before the best one so far, or that keep more than the caps.
type groupSearch struct {
	p            Interleaving
	chunks       int
	heads, tails []schedule.Nanos
	// nodes counts how many more runs may be advanced.
	nodes int
	// first reports that any grouping will do.
	first bool
	depth int
	t     groupTables
	// Of the grouping that is looked at, and of the best one so far.
	forward, backward []int
	best              Grouping
	// levels holds by number of groups the runs under way, one for each size of the next group.
	levels [][]groupChild
}

type groupChild struct {
	run   *groupRun
	size  int
	bound schedule.Nanos
}

func newGroupSearch(p Interleaving, nodes int) *groupSearch {
	s := &groupSearch{p: p, chunks: len(p.Costs.Stages) / p.Workers, nodes: nodes}
	s.heads, s.tails = p.ways()
	s.t.warmups = make([]int, p.Workers)
	s.best.Makespan = math.MaxInt64
	if p.Most > 0 {
		s.best.Makespan = p.Most + 1
	}
	return s
}

// extend tries every size of one more group after what a run knows. From an empty run it goes through
// all pairs of lists for a depth. It is false when it had to stop before the end.
func (s *groupSearch) extend(from *groupRun, level int) bool {
	if s.first && s.best.Depth > 0 {
		return true
	}
	forward := s.extendsForward()
	table, groups := &s.t.backward, &s.backward
	if forward {
		table, groups = &s.t.forward, &s.forward
	}
	known, count := len(*table), len(*groups)
	left := s.p.Micros - known/s.chunks
	if left == 0 {
		s.end(from)
		return true
	}
	children := s.level(level)[:0]
	for size := left; size >= 1; size-- {
		if s.nodes--; s.nodes < 0 {
			return false
		}
		children = children[:len(children)+1]
		child := &children[len(children)-1]
		*table = put((*table)[:known], s.chunks, size)
		if forward && known == 0 {
			s.t.warm(s.p, s.depth, size)
		}
		child.run.set(from)
		child.run.advance(s.p, &s.t)
		child.size, child.bound = size, s.bound(child.run)
		if !s.fits(child.run) || child.bound >= s.best.Makespan {
			children = children[:len(children)-1]
		}
	}
	slices.SortStableFunc(children, func(a, b groupChild) int { return int(a.bound - b.bound) })
	for _, child := range children {
		if child.bound >= s.best.Makespan {
			break
		}
		*table, *groups = put((*table)[:known], s.chunks, child.size), append((*groups)[:count], child.size)
		if forward && known == 0 {
			s.t.warm(s.p, s.depth, child.size)
		}
		if !s.extend(child.run, level+1) {
			return false
		}
	}
	*table, *groups = (*table)[:known], (*groups)[:count]
	return true
}

// extendsForward reports which list runs out first on the last worker.
func (s *groupSearch) extendsForward() bool {
	switch {
	case len(s.t.forward) == 0:
		return true
	case len(s.t.forward) == s.chunks*s.p.Micros:
		return false
	case len(s.t.backward) == s.chunks*s.p.Micros:
		return true
	}
	return len(s.t.forward) <= len(s.t.backward)+s.t.warmups[s.p.Workers-1]
}

// level returns the runs at a number of groups.
func (s *groupSearch) level(n int) []groupChild {
	for len(s.levels) <= n {
		children := make([]groupChild, s.p.Micros)
		for i := range children {
			children[i].run = newGroupRun(s.p)
		}
		s.levels = append(s.levels, children)
	}
	return s.levels[n]
}

// bound returns a time that a run cannot end before: each worker has the rest of a chunk and of the
// earlier ones to do, which no micro-batch reaches sooner than alone, then the last one goes back to
// the first stage.
func (s *groupSearch) bound(r *groupRun) (bound schedule.Nanos) {
	for w, free := range r.free {
		bound = max(bound, free)
		left := schedule.Nanos(0)
		for stage := len(r.left) - s.p.Workers + w; stage >= 0; stage -= s.p.Workers {
			if left += r.left[stage]; left > 0 {
				bound = max(bound, max(free, s.heads[stage])+left+s.tails[stage])
			}
		}
	}
	return bound
}

func (s *groupSearch) fits(r *groupRun) bool {
	for w, limit := range s.p.Caps {
		if r.peak[w] > limit {
			return false
		}
	}
	return true
}

// end takes a grouping whose run came to its end as the best one; others came to a stop.
func (s *groupSearch) end(r *groupRun) {
	if slices.Max(r.left) > 0 {
		return
	}
	if end := slices.Max(r.free); end < s.best.Makespan {
		s.best = Grouping{Depth: s.depth, Forward: slices.Clone(s.forward), Backward: slices.Clone(s.backward), Makespan: end, Peak: slices.Clone(r.peak)}
	}
}

// try times one grouping.
func (s *groupSearch) try(depth int, forward, backward []int) {
	s.nodes--
	s.depth, s.forward, s.backward = depth, forward, backward
	for _, g := range forward {
		s.t.forward = put(s.t.forward, s.chunks, g)
	}
	for _, g := range backward {
		s.t.backward = put(s.t.backward, s.chunks, g)
	}
	s.t.warm(s.p, depth, forward[0])
	r := newGroupRun(s.p)
	if r.advance(s.p, &s.t); s.fits(r) {
		s.end(r)
	}
	s.forward, s.backward, s.t.forward, s.t.backward = nil, nil, s.t.forward[:0], s.t.backward[:0]
}
