package planner

import (
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

const (
	// DriftPercent is by how much a step must be off its prediction before another schedule
	// is considered, GainPercent how much less one must promise.
	DriftPercent = 20
	GainPercent  = 10
	// driftWindows one after the other must say so: noise does not.
	driftWindows = 3
	// switchNanos is what a change costs that a commit alone cannot make: a checkpoint, and
	// the fill of new sessions.
	switchNanos schedule.Nanos = 10e9
)

// Watch follows reselections window by window and says when to change the schedule. The
// zero value has seen nothing.
type Watch struct {
	generation plan.Generation
	off        int // windows in a row
}

// Note takes a window in and decides; left are the steps that the run still has to do.
func (w *Watch) Note(current plan.Generation, r Reselection, left plan.Step) Decision {
	if w.generation != current {
		*w = Watch{generation: current}
	}
	no := func(format string, args ...any) Decision {
		w.off = 0
		return Decision{Reason: fmt.Sprintf(format, args...)}
	}
	now := r.usual()
	gain := now - r.Then
	switch {
	case r.asPromised():
		return no("a step takes %s as predicted, %s", plan.Time(r.Seen), plan.Time(r.Promised))
	case !gains(now, r.Then):
		return no("a step takes %s, predicted were %s; no other schedule is %d%% better", plan.Time(r.Seen), plan.Time(r.Promised), GainPercent)
	case !r.InPlace && gain < switchNanos/schedule.Nanos(max(left, 1)):
		return no("another schedule gains %s a step; the %d steps left do not make up for the change", plan.Time(gain), left)
	}
	if w.off++; w.off < driftWindows {
		return Decision{Reason: fmt.Sprintf("%d of %d: %s", w.off, driftWindows, r.Why)}
	}
	return Decision{Replan: true, Reason: r.Why}
}

// asPromised tells whether a step takes about what was predicted: then nothing is to change.
func (r Reselection) asPromised() bool {
	return max(r.Seen-r.Promised, r.Promised-r.Seen)*100 < r.Promised*DriftPercent
}

// usual is what a step of the schedule that runs counts as: what was seen where that is less than
// the model of it says. A model that is off promises too much.
func (r Reselection) usual() schedule.Nanos { return min(r.Now, r.Seen) }

// gains tells whether a step is shorter by a margin.
func gains(now, then schedule.Nanos) bool { return (now-then)*100 >= now*GainPercent }
