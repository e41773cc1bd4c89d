package node

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestARunThatWasStoppedBeginsWithAll: all nodes are asked to end, and are started again one after another within seconds. The plan that
// follows is for all of them, not first for whoever is back first.
func TestARunThatWasStoppedBeginsWithAll(t *testing.T) {
	size := fleetSize{Steps: 24, Stages: 3, Replicas: 1, CheckpointEvery: 5, MinNodes: 3}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		invite := f.add().found()
		for range 2 {
			f.add().join(invite)
		}
		f.until("step 12", time.Hour, func() bool { return f.truth.reached() >= 12 })
		before := f.state().Plan
		for _, m := range f.members {
			m.process.end()
		}
		for i, err := range f.untilEnded(time.Minute) {
			if err != nil && !errors.Is(err, ErrNotHandedOver) { // the last one has nobody to hand over to
				t.Errorf("node %d ends with %v", i, err)
			}
		}
		newest, began := f.truth.reached(), time.Now()
		for _, m := range f.members {
			m.join("")
			time.Sleep(2 * time.Second) // people start them
		}
		f.until("a step after it", time.Minute, func() bool { return f.truth.reached() > newest })
		after := f.state().Plan
		t.Logf("%v from the start to the next step, in generation %d after %d", time.Since(began).Round(time.Millisecond), after.Generation, before.Generation)
		if after.Generation != before.Generation+1 || len(after.Peers()) != len(f.members) {
			t.Errorf("generation %d with %d nodes, after %d with %d", after.Generation, len(after.Peers()), before.Generation, len(before.Peers()))
		}
		f.untilEnded(time.Hour)
		f.check()
	})
}
