package consensus

import (
	"testing"
	"time"

	"pnode/pipeline/model"
	"pnode/planner/departures"
	"pnode/planner/plan"
)

// TestDeparturesAreRemembered: all nodes count the same losses at the same times of the run, whoever leads, and from a snapshot too.
func TestDeparturesAreRemembered(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *cluster) {
		run := testRun()
		run.Spec.Train.Voters = plan.VotersAny // those that come back vote
		c.must(c.nodes["a"], run)
		const between = 20 * time.Second
		for range 3 {
			time.Sleep(between)
			lost := c.leader().self
			c.crash(lost)
			c.until("another leader", func() bool { return c.leader() != nil })
			m, _ := c.leader().State().Member(lost)
			c.must(c.leader(), SetMemberState{Peer: lost, ProcessEpoch: m.ProcessEpoch, State: Gone, Reason: "its process has ended"})
			c.join(lost)
			c.settle(3)
		}
		back := c.follower()
		if err := back.engine.Load().raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
		c.crash(back.self)
		c.start(back.self)
		c.goesOn(c.leader())
		want := c.leader().State().Departures
		c.everywhere("the departures", func(s State) bool { return s.Departures.Lost == 3 && len(s.Departures.Newest) == 3 })
		var last departures.Departure
		for i, d := range want.Newest {
			if gap := time.Duration(last.AtMillis-d.AtMillis) * time.Millisecond; i > 0 && (gap < between || gap > 2*between) {
				t.Errorf("%v between two losses, want %v and an election", gap, between)
			}
			last = d
		}
		for p, n := range c.nodes {
			c.until("the same clock", func() bool { return n.State().Departures.Clock == c.leader().State().Departures.Clock })
			if got := n.State().Departures; !equalStates(State{Departures: got}, State{Departures: want}) {
				t.Errorf("%s has %+v, want %+v", p, got, want)
			}
		}
	})
}

// TestACheckpointHasTheTimeOfItsCommit: that of the leader's clock when the last layer was reported, whenever it is read.
func TestACheckpointHasTheTimeOfItsCommit(t *testing.T) {
	s := State{
		Run:     &plan.RunSpec{Model: model.Config{Blocks: 1}, Train: plan.TrainSpec{Steps: 100}},
		Members: []Member{{Peer: "a", State: Active}},
		Plan:    plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Layers: plan.LayerRange{End: 3}}}}}},
	}
	begun := time.UnixMilli(1_000_000)
	for layer := range 3 {
		e := StageSaved{Step: 5, Generation: 1, Layers: []LayerRef{{Layer: layer, SizeBytes: 1, Chunks: []plan.Hash{{1}}, Holders: []plan.PeerID{"a"}}}}
		next, err := s.carryOut(proposal{author: "a", counter: uint64(layer + 1), entry: e}, 1, begun.Add(time.Duration(layer)*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	if got, want := s.Checkpoint.Time(), begun.Add(2*time.Second); s.Checkpoint.Step != 5 || !got.Equal(want) {
		t.Errorf("step %d at %v, want step 5 at %v", s.Checkpoint.Step, got, want)
	}
}
