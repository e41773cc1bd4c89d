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
// losses and the weights of one node alone. The ledger of each of them alone proves all steps, that of a fourth one too, which
// has no part in the plan. They speak QUIC on simulated sockets.
func TestThreeNodesInVirtualTime(t *testing.T) {
	size := fleetSize{Steps: 20, Stages: 3, Replicas: 1, CheckpointEvery: 5, MinNodes: 4, Packets: true}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		began := time.Now()
		founder := f.add()
		invite := founder.found()
		for range 3 {
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
		for _, m := range f.members {
			if _, err := f.audit([]string{m.dir}); err != nil {
				t.Errorf("%s alone: %v", m.name(), err)
			}
		}
	})
}

// completes starts members again, waits until all end without an error, and returns how many steps were computed again.
func (f *fleet) completes(stopped ...*member) (redone int) {
	f.Helper()
	for _, m := range stopped {
		m.join("")
	}
	for i, err := range f.untilEnded(time.Hour) {
		if err != nil {
			f.Errorf("node %d: %v", i, err)
		}
	}
	return f.check()
}

// check audits a fleet whose nodes have ended, and returns how many steps were computed again.
func (f *fleet) check() (redone int) {
	f.Helper()
	check := f.audit
	if f.size.Sync.Local {
		check = f.again
	}
	redone, err := check(f.dirs())
	if err != nil {
		f.Fatal(err)
	}
	return redone
}

// audit checks what the ledgers in some folders prove, and the founder's model.
func (f *fleet) audit(dirs []string) (redone int, err error) {
	founder := f.members[0].dir
	run, err := LoadRun(founder)
	if err != nil {
		return 0, err
	}
	return f.truth.audit(dirs, founder, run)
}
