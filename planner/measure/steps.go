package measure

import (
	"cmp"
	"slices"

	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Steps has what a running plan showed over some steps.
type Steps struct {
	// StepNanos is the time of a step.
	StepNanos int64
	Stages    []Stage
	Links     []Link
}

// Stage is where a stage's step went.
type Stage = cost.MeasuredStage

// Link is one direction of a link while it carried a run's messages.
type Link struct {
	From, To plan.PeerID
	// BytesPerS is the rate at which messages came through, or an upper bound of it; 0 where too
	// little was sent to know.
	BytesPerS, RTTNanos, JitterNanos int64
	// Transport is over what they went, "" where it is not known.
	Transport plan.Transport
}

// Median returns the middle of each figure of several samples of a plan, the oldest first, and of a link's round trips
// the least, since its own messages delay each other. Of a link only the samples over its newest transport count.
func Median(samples []Steps) Steps {
	var out Steps
	steps := make([]int64, len(samples))
	for i, s := range samples {
		steps[i] = s.StepNanos
	}
	out.StepNanos = middle(steps)
	for _, of := range gather(samples, func(s Steps) []Stage { return s.Stages }, func(a, b Stage) int {
		return cmp.Or(cmp.Compare(a.Replica, b.Replica), cmp.Compare(a.Stage, b.Stage))
	}) {
		s := of[0]
		s.ForwardNanos = middle(project(of, func(s Stage) int64 { return s.ForwardNanos }))
		s.BackwardNanos = middle(project(of, func(s Stage) int64 { return s.BackwardNanos }))
		s.UpdateNanos = middle(project(of, func(s Stage) int64 { return s.UpdateNanos }))
		out.Stages = append(out.Stages, s)
	}
	for _, of := range gather(samples, func(s Steps) []Link { return s.Links }, func(a, b Link) int {
		return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	}) {
		l := of[len(of)-1]
		of = slices.DeleteFunc(of, func(s Link) bool { return s.Transport != l.Transport })
		known := slices.DeleteFunc(project(of, func(l Link) int64 { return l.BytesPerS }), func(n int64) bool { return n <= 0 })
		l.BytesPerS = middle(known)
		l.RTTNanos = slices.Min(project(of, func(l Link) int64 { return l.RTTNanos }))
		l.JitterNanos = slices.Min(project(of, func(l Link) int64 { return l.JitterNanos }))
		out.Links = append(out.Links, l)
	}
	return out
}

// gather sorts the figures of samples into groups of equals.
func gather[T any](samples []Steps, of func(Steps) []T, compare func(a, b T) int) [][]T {
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

// middle returns the lower median, 0 of none.
func middle(values []int64) int64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}
