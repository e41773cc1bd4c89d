package node

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// TestAfterAStopOfAllTheOwnerGoesOnAlone: all nodes are interrupted at once. The owner's has the last checkpoint whole then and votes
// alone, so that it goes on by itself, without going back; the others come later.
func TestAfterAStopOfAllTheOwnerGoesOnAlone(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 10, MinNodes: 3}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := stopAll(t, size, known, 13)
		founder := f.members[0]
		stopped := f.truth.reached()
		began := time.Now()
		founder.join("")
		f.until("a step of the owner's node alone", time.Minute, func() bool { return f.truth.reached() > stopped })
		f.Logf("%v from the start of the owner's node alone to step %d", time.Since(began).Round(time.Millisecond), f.truth.reached())
		if p := founder.node().raft.State().Plan; p.Start != stopped {
			f.Errorf("it goes on from step %d, want the last one, %d", p.Start, stopped)
		}
		for _, m := range f.members[1:] {
			m.join("")
		}
		for i, err := range f.untilEnded(time.Hour) {
			if err != nil {
				f.Errorf("node %d: %v", i, err)
			}
		}
		if redone := f.check(); redone != 0 {
			f.Errorf("%d steps were computed again", redone)
		}
	})
}

// stopAll begins a run, interrupts all of its nodes at once after a step, and waits until they have ended.
func stopAll(t *testing.T, size fleetSize, known *truth, after plan.Step) *fleet {
	t.Helper()
	f := newFleet(t, size, known.again())
	invite := f.add().found()
	for range size.MinNodes - 1 {
		f.add().join(invite)
	}
	f.until("the step", time.Hour, func() bool { return f.truth.reached() >= after })
	began := time.Now()
	for _, m := range f.members {
		m.process.end()
	}
	for i, err := range f.untilEnded(time.Minute) {
		if err != nil {
			f.Errorf("node %d stops with %v", i, err)
		}
	}
	f.Logf("stopped at step %d in %v", f.truth.reached(), time.Since(began).Round(time.Millisecond))
	if slices.ContainsFunc(f.members, (*member).running) {
		f.Fatal("a node runs")
	}
	return f
}
