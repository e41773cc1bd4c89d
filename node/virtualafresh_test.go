package node

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/config"
	"pnode/planner/plan"
)

// TestAnUnattendedRunBeginsAgain: the machine that alone had layers of all checkpoints is lost for good. The run waits and says for how long; then it
// goes on from its start by itself, with the same losses.
func TestAnUnattendedRunBeginsAgain(t *testing.T) {
	const after = 10 * time.Minute
	size := fleetSize{Steps: 16, Stages: 2, Replicas: 1, CheckpointEvery: 4, MinNodes: 3, Parts: true, RecoverAfter: config.LostMajority(after)}
	known := undisturbed(t, size)
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, size, known.again())
		f.uncopied.Store(true)
		invite := f.add().found()
		for range size.MinNodes - 1 {
			f.add().join(invite)
		}
		f.until("a checkpoint", time.Hour, func() bool { return f.checkpoint().Step >= 8 && len(f.members[0].node().raft.Quorum().Voters) == 3 })
		before := f.state().Plan
		f.anotherOf(before, f.members[0]).kill()
		reached, began := f.truth.reached(), time.Now()
		begins := func() bool {
			s := f.state()
			return s.Plan.Generation > before.Generation && s.Plan.Start == 0 && s.Checkpoint.Step == 0
		}
		f.until("a word of how long it waits", 2*time.Minute, func() bool {
			for _, m := range f.members {
				if n := m.node(); n != nil && strings.Contains(n.monitor.Status().Waiting, "After 10 min without it the run goes on from step 0: steps 1 to ") {
					return true
				}
			}
			return false
		})
		f.until("the start of the run", after+2*time.Minute, begins)
		if waited := time.Since(began); waited < after {
			t.Errorf("it waits for %v", waited)
		}
		f.until("its end", time.Hour, func() bool { f.movedAt = time.Now(); return f.over() && !f.members[0].running() })
		for i, m := range f.members {
			if !m.running() && m.process.err != nil && m.process.err.Error() != errKilled.Error() {
				t.Errorf("node %d: %v", i, m.process.err)
			}
		}
		if redone := f.check(); plan.Step(redone) < reached-1 {
			t.Errorf("%d steps were computed again of %d", redone, reached)
		}
	})
}
