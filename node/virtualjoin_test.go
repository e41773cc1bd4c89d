package node

import (
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
)

// mostJoinStop bounds the time from the last step before a join to the first one with the newcomer, in steps as they were. The newcomer
// has its state before the pause, so only the pause itself comes on top of a step.
const mostJoinStop = 1.2

// TestAJoinInVirtualTime: a third node joins two that train. It gets layers after a step that was saved, no step is computed
// again, the way to the next step takes mostJoinStop steps at most, and the losses are those of one node alone.
func TestAJoinInVirtualTime(t *testing.T) {
	size := fleetSize{Steps: 40, Replicas: 1, CheckpointEvery: 10, MinNodes: 2}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		founder := f.add()
		invite := founder.found()
		f.add().join(invite)
		f.untilStep(5)
		beat, _ := founder.node().heartbeats.Last(founder.node().self)
		usual := time.Duration(beat.StepNanos)
		f.add().join(invite)
		var told *api.Interruption
		f.until("a step of a plan with the newcomer", time.Hour, func() bool {
			n := founder.node()
			if n == nil || len(n.raft.State().Plan.Peers()) < 3 {
				return false
			}
			for _, h := range n.monitor.History().Happened {
				if h.Event.Interruption != nil {
					told = h.Event.Interruption
				}
			}
			return told != nil
		})
		if told.Rung != api.RungPause || told.Redone > 0 || told.TotalS > mostJoinStop*usual.Seconds() {
			t.Errorf("%s; at most %.1f steps of %v", told.Text(), mostJoinStop, usual)
		}
		t.Logf("%s; a step before took %v", told.Text(), usual)
		if redone := f.completes(); redone > 0 {
			t.Errorf("%d steps were computed again", redone)
		}
	})
}

// TestTwoJoinInOneChangeInVirtualTime: the second of two newcomers is in the log when the plan with the first one is due, which waits for it.
func TestTwoJoinInOneChangeInVirtualTime(t *testing.T) {
	size := fleetSize{Steps: 40, Replicas: 1, CheckpointEvery: 10, MinNodes: 1}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, newTruth())
		founder := f.add()
		invite := founder.found()
		f.untilStep(5)
		f.add().join(invite)
		f.until("the first one in the log", time.Hour, func() bool { return len(founder.node().raft.State().Members) == 2 })
		f.add().join(invite)
		f.until("the next plan", time.Hour, func() bool { return founder.node().raft.State().Plan.Generation == 2 })
		if peers := founder.node().raft.State().Plan.Peers(); len(peers) != 3 {
			t.Errorf("the next plan is of %d nodes", len(peers))
		}
	})
}
