package node

import (
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/api"
)

// mostJoinStop bounds how long a join may stop the steps of a fleet, of 1.3 s each, whose lines need a second for the state
// that moves.
const mostJoinStop = 4 * time.Second

// TestAJoinInVirtualTime: a third node joins two that train. It gets layers after a step that was saved, no step is computed
// again, and the losses are those of one node alone.
func TestAJoinInVirtualTime(t *testing.T) {
	size := fleetSize{Steps: 40, Replicas: 1, CheckpointEvery: 10, MinNodes: 2}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		founder := f.add()
		invite := founder.found()
		f.add().join(invite)
		f.until("step 5", time.Hour, func() bool { return f.truth.reached() >= 5 })
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
		if stop := time.Duration(told.TotalS * float64(time.Second)); told.Rung != api.RungPause || told.Redone > 0 || stop > mostJoinStop {
			t.Errorf("%s, in all at most %v", told.Text(), mostJoinStop)
		}
		t.Log(told.Text())
		for i, err := range f.untilEnded(time.Hour) {
			if err != nil {
				t.Errorf("node %d: %v", i, err)
			}
		}
		if redone := f.check(); redone > 0 {
			t.Errorf("%d steps were computed again", redone)
		}
	})
}
