package node

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/swarm/consensus"
)

// TestALostNodesPartGoesOnFromTheCheckpoint: without a second replica a node is lost some steps after a checkpoint. Another one computes
// them again and goes on in the same generation; nobody else does, and the losses are those of one node alone.
func TestALostNodesPartGoesOnFromTheCheckpoint(t *testing.T) {
	size := fleetSize{Steps: 18, Stages: 3, Replicas: 1, CheckpointEvery: 6, MinNodes: 3}
	known := undisturbed(t, size)
	for name, is := range places {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, size, known.again())
				invite := f.add().found()
				for range 2 {
					f.add().join(invite)
				}
				var lost *member
				var before consensus.State
				f.until("somebody to lose", time.Hour, func() bool {
					for _, m := range f.members {
						if n := m.node(); n != nil && lost == nil && f.truth.reached() >= 9 {
							_, _, leader := n.raft.Leader()
							if state := n.raft.State(); state.Checkpoint.Step == 6 && state.Plan.Places(n.self) && is(leader, state.Plan.Coordinator().Peer == n.self) {
								lost, before = m, state
							}
						}
					}
					return lost != nil || f.over()
				})
				if lost == nil {
					t.Fatal("there was nobody to lose between the checkpoints")
				}
				substituted := f.firstSubstitute(t.Context(), f.others(lost))
				lost.kill(f.others(lost)...)
				killed, newest := time.Now(), f.truth.reached()
				f.until("a substitute", time.Minute, func() bool { return substituted.Load() != nil })
				found := substituted.Load().Substitute
				if !found.Replays || found.From != 6 || found.Generation != before.Plan.Generation {
					t.Errorf("%+v goes on after step 6 of generation %d", found, before.Plan.Generation)
				}
				f.until("a step after the loss", time.Minute, func() bool { return f.truth.reached() > newest })
				t.Logf("%v from the loss after step %d to the next step; %s goes on in its place", time.Since(killed).Round(time.Millisecond), newest, found.By.Short())
				f.until("another plan", time.Hour, func() bool {
					for _, m := range f.others(lost) {
						if n := m.node(); n != nil && n.raft.State().Plan.Generation > before.Plan.Generation {
							next := n.raft.State()
							if next.Plan.Generation == before.Plan.Generation+1 && !strings.Contains(next.Reasons[0], "computes its part") {
								t.Errorf("the next plan is made because %s, as if the generation had ended", next.Reasons[0])
							}
							return true
						}
					}
					return f.over()
				})
				f.tells(before.Plan, *found)
				lost.join("") // the founder's folder is to have the model
				for i, err := range f.untilEnded(time.Hour) {
					if err != nil && !errors.Is(err, errKilled) {
						t.Errorf("node %d: %v", i, err)
					}
				}
				if redone := f.check(); redone != 0 {
					t.Errorf("%d steps were computed again", redone)
				}
			})
		})
	}
}
