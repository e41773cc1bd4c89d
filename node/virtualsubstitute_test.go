package node

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/swarm/consensus"
)

// places tells the places apart that a lost node may have had in the run.
var places = map[string]func(leads, coordinates bool) bool{
	"a follower":      func(leads, coordinates bool) bool { return !leads && !coordinates },
	"the leader":      func(leads, _ bool) bool { return leads },
	"the coordinator": func(_, coordinates bool) bool { return coordinates },
}

// TestALostNodesPartGoesOnElsewhere: of two replicas a node is lost, whether it leads, coordinates the steps, or neither. Another one goes
// on in its place in the same generation, the plan after that is without it, and every step is done once, with the losses of one node alone.
func TestALostNodesPartGoesOnElsewhere(t *testing.T) {
	size := fleetSize{Steps: 20, Stages: 2, Replicas: 2, CheckpointEvery: 50, MinNodes: 4}
	known := undisturbed(t, size)
	for name, wanted := range places {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, size, known.again())
				invite := f.add().found()
				for range 3 {
					f.add().join(invite)
				}
				var lost *member
				f.until("somebody to lose", time.Hour, func() bool {
					lost = nil
					for _, m := range f.members {
						if n := m.node(); n != nil && f.truth.reached() >= 6 {
							_, _, leads := n.raft.Leader()
							if state := n.raft.State(); len(state.Plan.Substitutes(n.self)) > 0 && wanted(leads, n.self == state.Substitute.Coordinator(state.Plan)) {
								lost = m
							}
						}
					}
					return lost != nil || f.over()
				})
				if lost == nil {
					t.Fatal("nobody can be lost")
				}
				state := lost.node().raft.State()
				lostPeer, why := lost.node().self, ""
				substituted := f.firstSubstitute(t.Context(), f.others(lost))
				lost.kill(f.others(lost)...)
				killed, before := time.Now(), f.truth.reached()
				f.until("a substitute", time.Minute, func() bool { return substituted.Load() != nil })
				with := substituted.Load()
				by := with.Substitute.By
				if state.Substitute.Coordinator(state.Plan) == lostPeer && with.Substitute.Coordinator(with.Plan) != by {
					t.Errorf("%s coordinates the steps, want %s", with.Substitute.Coordinator(with.Plan).Short(), by.Short())
				}
				f.until("a step after the loss", time.Minute, func() bool { return f.truth.reached() > before })
				t.Logf("%v from the loss to the next step; %s goes on in its place", time.Since(killed).Round(time.Millisecond), by.Short())
				f.until("another plan", time.Hour, func() bool {
					for _, m := range f.members {
						if n := m.node(); n != nil && n.raft.State().Plan.Generation > state.Plan.Generation {
							why = n.raft.State().Reasons[0]
							return true
						}
					}
					return f.over()
				})
				f.tells(state.Plan, *with.Substitute)
				if !strings.Contains(why, "computes its part") {
					t.Errorf("the next plan is made because %s, as if the generation had ended", why)
				}
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

// firstSubstitute returns where the first state goes in which a log of some members names a substitute, until ctx ends. The plan after
// it may come within moments.
func (f *fleet) firstSubstitute(ctx context.Context, of []*member) *atomic.Pointer[consensus.State] {
	var first atomic.Pointer[consensus.State]
	for _, m := range of {
		n := m.node()
		if n == nil {
			continue
		}
		go func() {
			for ctx.Err() == nil && first.Load() == nil {
				changed := n.raft.Changed()
				if state := n.raft.State(); state.Substitute != nil {
					first.CompareAndSwap(nil, &state)
				}
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}()
	}
	return &first
}

// others returns all members but one.
func (f *fleet) others(but *member) (all []*member) {
	for _, m := range f.members {
		if m != but {
			all = append(all, m)
		}
	}
	return all
}
