package planner

import (
	"cmp"
	"maps"
	"slices"

	"pnode/planner/layout"
	"pnode/planner/plan"
)

// Seen is what a running plan showed over some steps.
type Seen struct {
	// StepNanos is what a step took.
	StepNanos int64
	Stages    []StageSeen
	Links     []LinkSeen
}

// StageSeen is where a stage's step went.
type StageSeen = layout.StageSeen

// LinkSeen is one direction of a link while it carried a run's messages.
type LinkSeen struct {
	From, To plan.PeerID
	// BytesPerS is the rate at which messages came through, or a bound of it from above; 0 where
	// too little was sent to tell.
	BytesPerS, RTTNanos, JitterNanos int64
}

// Median condenses what several samples of a plan show: of each figure the middle one, of a
// link's round trip the least, since its own messages stand in each other's way.
func Median(samples []Seen) Seen {
	var out Seen
	steps := make([]int64, len(samples))
	for i, s := range samples {
		steps[i] = s.StepNanos
	}
	out.StepNanos = middle(steps)
	for _, of := range gather(samples, func(s Seen) []StageSeen { return s.Stages }, func(a, b StageSeen) int {
		return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Stage, b.Stage))
	}) {
		s := of[0]
		s.ForwardNanos = middle(project(of, func(s StageSeen) int64 { return s.ForwardNanos }))
		s.BackwardNanos = middle(project(of, func(s StageSeen) int64 { return s.BackwardNanos }))
		s.UpdateNanos = middle(project(of, func(s StageSeen) int64 { return s.UpdateNanos }))
		out.Stages = append(out.Stages, s)
	}
	for _, of := range gather(samples, func(s Seen) []LinkSeen { return s.Links }, func(a, b LinkSeen) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	}) {
		l := of[0]
		known := slices.DeleteFunc(project(of, func(l LinkSeen) int64 { return l.BytesPerS }), func(n int64) bool { return n <= 0 })
		l.BytesPerS = middle(known)
		l.RTTNanos = slices.Min(project(of, func(l LinkSeen) int64 { return l.RTTNanos }))
		l.JitterNanos = slices.Min(project(of, func(l LinkSeen) int64 { return l.JitterNanos }))
		out.Links = append(out.Links, l)
	}
	return out
}

// gather sorts what samples have into groups of equals.
func gather[T any](samples []Seen, of func(Seen) []T, compare func(a, b T) int) [][]T {
	var all []T
	for _, s := range samples {
		all = append(all, of(s)...)
	}
	slices.SortStableFunc(all, compare)
	var groups [][]T
	for i, t := range all {
		if i == 0 || compare(all[i-1], t) != 0 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], t)
	}
	return groups
}

func project[T any](all []T, value func(T) int64) []int64 {
	out := make([]int64, len(all))
	for i, t := range all {
		out[i] = value(t)
	}
	return out
}

// middle is the lower median, 0 of none.
func middle(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// with are links with what was seen of some of them.
func (l links) with(seen []LinkSeen) links {
	out := maps.Clone(l.measured)
	for _, s := range seen {
		link, _ := l.between(s.From, s.To)
		if s.BytesPerS > 0 {
			link.BytesPerS = min(link.BytesPerS, s.BytesPerS)
		}
		if s.RTTNanos > 0 {
			link.RTTNanos = s.RTTNanos + 2*max(s.JitterNanos, 0)
		}
		out[[2]plan.PeerID{s.From, s.To}] = link
	}
	return linksOf(out)
}
