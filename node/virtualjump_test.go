package node

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestTheLossJumpsWithLocalSteps: from a step on the losses are far above those before, as the leader hears. The run goes back to an outer step of before, without the member
// that is trusted least, and makes the steps since then again.
func TestTheLossJumpsWithLocalSteps(t *testing.T) {
	for name, jump := range map[string]plan.Step{"at the begin of a round": 77, "within a round": 79} {
		if testing.Short() && jump == 77 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newLocalRun(t, 3, func(s *fleetSize) {
					s.Steps = 100
					s.Opened = func(n *Node) {
						honest := n.leader.Losses
						n.leader.Losses = func(g plan.Generation, step plan.Step) []gossip.StepLoss {
							all := slices.Clone(honest(g, step))
							for i, l := range all {
								if l.Generation == 1 && l.Step >= jump {
									all[i].Loss += 5
								}
							}
							return all
						}
					}
				})
				r.until("the next plan", time.Hour, func() bool {
					n := r.members[0].node()
					if n == nil {
						t.Fatal("the run has ended")
					}
					return n.raft.State().Plan.Generation == 2
				})
				s := r.members[0].node().raft.State()
				i := slices.IndexFunc(s.Blames, func(b consensus.Blame) bool { return b.Kind == plan.LossJump })
				if i < 0 || s.Blames[i].Step != jump || s.Blames[i].Back == 0 || s.Blames[i].Back >= jump || s.Blames[i].Peer == "" || slices.Contains(s.Owners, s.Blames[i].Peer) {
					t.Fatalf("%+v", s.Blames)
				}
				b := s.Blames[i]
				if s.Plan.Start != b.Back || s.Plan.Start%4 != 0 || s.Plan.Places(b.Peer) || len(s.Plan.Replicas) != 2 || s.Plan.Local == nil {
					t.Errorf("back to step %d: from step %d on %d replicas", b.Back, s.Plan.Start, len(s.Plan.Replicas))
				}
				if why := strings.Join(s.Reasons, "\n"); !strings.Contains(why, "the loss jumped from") {
					t.Errorf("%s", why)
				}
				r.until("another outer step", time.Hour, func() bool {
					m := r.members[0].node().raft.State().Merged
					return m != nil && m.Generation == 2
				})
				r.mu.Lock()
				if math.IsNaN(r.losses[counted{2, s.Plan.Start + 1}]) || r.losses[counted{2, s.Plan.Start + 1}] == 0 {
					t.Errorf("step %d is not made again: %v", s.Plan.Start+1, r.losses)
				}
				r.mu.Unlock()
				r.ends()
			})
		})
	}
}
