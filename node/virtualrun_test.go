package node

import (
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

// undisturbed trains on one node that nothing disturbs, and returns what others are checked against.
func undisturbed(t *testing.T, size fleetSize) *truth {
	t.Helper()
	size.Stages, size.Replicas, size.MinNodes = 1, 1, 1
	known := newTruth()
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known)
		founder := f.add()
		founder.found()
		if errs := f.untilEnded(time.Hour); errs[0] != nil {
			t.Fatal(errs[0])
		}
		if err := known.settle(founder.dir, plan.Step(size.Steps)); err != nil {
			t.Fatal(err)
		}
	})
	return known
}

// TestThreeNodesInVirtualTime: whole nodes enter a run, train it to its end and leave the model with its owner, with the
// losses and the weights of one node alone.
func TestThreeNodesInVirtualTime(t *testing.T) {
	size := fleetSize{Steps: 20, Stages: 3, Replicas: 1, CheckpointEvery: 5, MinNodes: 3}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		began := time.Now()
		founder := f.add()
		invite := founder.found()
		for range 2 {
			f.add().join(invite)
		}
		for i, err := range f.untilEnded(time.Hour) {
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		}
		t.Logf("done after %s", time.Since(began))
		if got := f.truth.reached(); got != plan.Step(size.Steps) {
			t.Errorf("nobody told of a step after %d of %d", got, size.Steps)
		}
		f.check()
	})
}

// check audits a fleet whose nodes have ended, and returns how many steps were computed again.
func (f *fleet) check() (redone int) {
	f.Helper()
	var dirs []string
	for _, m := range f.members {
		dirs = append(dirs, m.dir)
	}
	founder := f.members[0].dir
	run, err := LoadRun(founder)
	if err == nil {
		redone, err = f.truth.audit(dirs, founder, run)
	}
	if err != nil {
		f.Fatal(err)
	}
	return redone
}
