package leader

import (
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhoWasStartedAgainIsNotDeaf: a member that lives and does not begin with its plan is accused, unless its process is newer
// than the plan: that one carries out none until the next.
func TestWhoWasStartedAgainIsNotDeaf(t *testing.T) {
	state := consensus.State{PlanEpoch: 7, Run: &plan.RunSpec{}, Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Micros: 1, Stages: []plan.Placement{
		{Peer: "a", Device: "cpu"}, {Peer: "deaf", Device: "cpu"}, {Peer: "back", Device: "cpu"}, {Peer: "gone", Device: "cpu"},
	}}}}}
	state.Members = []consensus.Member{
		{Peer: "a", State: consensus.Active, Since: 2},
		{Peer: "back", State: consensus.Active, Since: 8},
		{Peer: "deaf", State: consensus.Active, Since: 2},
		{Peer: "gone", State: consensus.Gone, Since: 2},
	}
	beats, now := gossip.NewTracker(), time.Unix(1000, 0)
	watch := deafWatch{beats: beats}
	watch.look(state, now)
	now = now.Add(deafAfter)
	beats.Note(gossip.Heartbeat{Peer: "a", Generation: 3}, now)
	for _, p := range []plan.PeerID{"deaf", "back", "gone"} {
		beats.Note(gossip.Heartbeat{Peer: p, Generation: 2}, now)
	}
	accused := func(of plan.Generation, want bool) {
		t.Helper()
		beats.Note(gossip.Heartbeat{Peer: "deaf", Generation: of}, now)
		said := watch.look(state, now)
		if is := len(said) == 1 && said[0].Accused == "deaf" && said[0].Kind == plan.NoProgress; is != want || len(said) > 1 {
			t.Errorf("generation %d: accused are %+v, want the deaf one: %v", of, said, want)
		}
	}
	accused(2, true)
	accused(9, false) // it may have seen a plan that this look has not
	now = now.Add(deafAfter)
	accused(9, true) // there is none
	state.Plan.Generation = 9
	accused(9, false)
	state.Plan.Generation = 3
	accused(9, false)
	now = now.Add(deafAfter)
	accused(9, true) // also from the first look on
}
