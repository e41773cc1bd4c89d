package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/generation"
	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestAReplicaWithLocalStepsLies: one of three says to the log that it has other messages of the rest than these have sent. The rest convicts it: what they have learned counts, and
// the next plan does without it. One of two that is no owner's node is not believed against one that is.
func TestAReplicaWithLocalStepsLies(t *testing.T) {
	for _, nodes := range []int{3, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newLocalRun(t, nodes)
			liar, lies := r.members[nodes-1], plan.Replica(0)
			r.until("a lie", time.Hour, func() bool {
				s := liar.node().raft.State()
				if s.Round == nil || s.Round.From < 4 || !r.made(liar, s.Round.From+2) {
					return false
				}
				g := consensus.Gathered{Generation: s.Plan.Generation, From: s.Round.From, Parts: slices.Repeat([]plan.Part{{Steps: 4, Sum: plan.Hash{1}}}, nodes)}
				for q := range s.Plan.Replicas {
					if plan.CoordinatorOf(s.Plan, plan.Replica(q)).Peer == liar.self {
						g.Replica, lies = plan.Replica(q), plan.Replica(q)
					}
				}
				if err := liar.node().raft.Propose(t.Context(), g); err != nil {
					t.Fatal(err)
				}
				return true
			})
			from := r.members[0].node().raft.State().Round.From
			r.until("the next plan", time.Hour, func() bool { return r.members[0].node().raft.State().Plan.Generation == 2 })
			s := r.members[0].node().raft.State()
			i := slices.IndexFunc(s.Blames, func(b consensus.Blame) bool { return b.Kind == plan.BadSum })
			if i < 0 || s.Blames[i].Peer != liar.self || s.Blames[i].Until == 0 {
				t.Errorf("of %d: %+v", nodes, s.Blames)
			}
			if q := strings.Join(s.Reasons, "\n"); nodes == 3 && !strings.Contains(q, fmt.Sprintf("which replicas %v ", []plan.Replica{lies})) {
				t.Errorf("of %d: %s", nodes, q)
			}
			if s.Plan.Places(liar.self) || s.Plan.Start < from+4 || len(s.Plan.Replicas) != nodes-1 {
				t.Errorf("of %d: from step %d on a plan of %d replicas, after the round from step %d on", nodes, s.Plan.Start, len(s.Plan.Replicas), from)
			}
			t.Log(strings.Join(s.Reasons, "\n"))
			if nodes == 2 && lies == 0 {
				r.untilEnded(time.Hour) // it was the liar's round that counted, as who trains it again finds
				return
			}
			r.ends()
		})
	}
}

// hasty is the log as node-2 sees it: each round after the first is closed, in the first plan.
type hasty struct {
	generation.Consensus
	self plan.PeerID
}

func (h hasty) State() consensus.State {
	s := h.Consensus.State()
	if s.NameOf(h.self) == "node-2" && s.Plan.Generation == 1 && s.Round != nil && s.Round.From > 0 {
		r := s.Round.Close()
		s.Round = &r
	}
	return s
}

// TestAReplicaWithLocalStepsEndsRoundsEarly: one of three hands in what it has learned in fewer steps than a round has, which nobody has closed. The others' words find that out,
// what they have learned counts, and the next plan does without it. Otherwise each plan in which messages travel would end with the round.
func TestAReplicaWithLocalStepsEndsRoundsEarly(t *testing.T) {
	for _, delay := range []plan.Step{0, 2} {
		synctest.Test(t, func(t *testing.T) {
			r := newLocalRun(t, 3, func(s *fleetSize) {
				s.Sync.Delay, s.Sync.AtOnce = delay, delay == 0
				s.Opened = func(n *Node) { n.parts.Consensus = hasty{n.parts.Consensus, n.self} }
			})
			liar := r.members[2]
			r.until("the next plan", time.Hour, func() bool { return r.members[0].node().raft.State().Plan.Generation == 2 })
			s := r.members[0].node().raft.State()
			if len(s.Blames) != 1 || s.Blames[0].Peer != liar.self || s.Blames[0].Until == 0 || !strings.Contains(s.Blames[0].Detail, "before the round was closed") {
				t.Errorf("delay %d: %+v", delay, s.Blames)
			}
			if why := strings.Join(s.Reasons, "\n"); !strings.Contains(why, "node-2 is left out of plans until") || s.Plan.Places(liar.self) || s.Plan.Start != 8 {
				t.Errorf("delay %d: from step %d on with %d replicas: %s", delay, s.Plan.Start, len(s.Plan.Replicas), why)
			}
			r.ends()
			if g := r.members[0].process.node.Load().raft.State().Plan.Generation; g != 2 {
				t.Errorf("delay %d: %d plans", delay, g)
			}
		})
	}
}

// TestBadMessagesOfAnotherReplica do not end who gets them: the log leaves their sender out of the round, by the word of who did, and of plans for a while.
func TestBadMessagesOfAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newLocalRun(t, 3)
		sender, finder := r.members[2], r.members[1]
		r.until("a round", time.Hour, func() bool { return r.made(finder, 6) })
		found := gossip.FoundFault{Generation: 1, From: 4, Fault: plan.Fault{Accused: sender.self, Kind: plan.BadTensor, Step: 4, Detail: "element 0 is NaN"}}
		finder.node().words.Accuse(found)
		r.until("the next plan", time.Hour, func() bool { return r.members[0].node().raft.State().Plan.Generation == 2 })
		s := r.members[0].node().raft.State()
		if i := slices.IndexFunc(s.Blames, func(b consensus.Blame) bool {
			return b.Peer == sender.self && b.Accuser == finder.self && b.Kind == plan.BadTensor
		}); i < 0 || s.Blames[i].Until == 0 {
			t.Errorf("%+v", s.Blames)
		}
		if s.Plan.Places(sender.self) || s.Plan.Start < 8 || s.Plan.Start > 12 || len(s.Plan.Replicas) != 2 {
			t.Errorf("from step %d on a plan of %d replicas", s.Plan.Start, len(s.Plan.Replicas))
		}
		if why := strings.Join(s.Reasons, "\n"); !strings.Contains(why, "node-2 is left out of plans until") || !strings.Contains(why, "not used: node-2") {
			t.Errorf("%q", s.Reasons)
		}
		r.ends()
	})
}

// TestAReplicaWithLocalStepsLeaves in order: the round is closed, and the others go on from its outer step, with what the one that leaves has learned in it. What it had for
// itself goes with it, which it says, and the plan that follows. That others have the first replica's of an older checkpoint is no help.
func TestAReplicaWithLocalStepsLeaves(t *testing.T) {
	for q := range plan.Replica(2) {
		synctest.Test(t, func(t *testing.T) {
			r := newLocalRun(t, 3)
			leaves := plan.CoordinatorOf(r.members[0].node().raft.State().Plan, q).Peer
			at := slices.IndexFunc(r.members, func(m *member) bool { return m.self == leaves })
			leaver, stays := r.members[at], r.members[(at+1)%3]
			r.until("a saved round", time.Hour, func() bool { return r.made(leaver, 10) && r.checkpoint().Step == 8 })
			leaver.process.end()
			r.until("the next plan", time.Hour, func() bool { return stays.node().raft.State().Plan.Generation == 2 })
			s := stays.node().raft.State()
			if s.Plan.Places(leaver.self) || s.Plan.Start < 10 || s.Plan.Start > 12 || s.Merged != nil && s.Merged.Generation == 1 {
				t.Errorf("replica %d: from step %d on %+v", q, s.Plan.Start, s.Plan.Replicas)
			}
			if text := strings.Join(s.Reasons, "\n"); strings.Count(text, "goes on in no replica") != 1 || strings.Contains(text, "begins with a copy") {
				t.Errorf("replica %d: %q", q, s.Reasons)
			}
			r.mu.Lock()
			said := slices.Clone(r.drains)
			r.mu.Unlock()
			if len(said) == 0 || !strings.Contains(said[0], "the round after step 8 ends first") || slices.ContainsFunc(said, func(text string) bool { return !strings.Contains(text, "of which there is no copy") }) {
				t.Errorf("replica %d: %q", q, said)
			}
			if leaver == r.members[0] { // whose folder is looked at
				<-leaver.process.ended
				leaver.join("")
			}
			r.ends()
		})
	}
}
