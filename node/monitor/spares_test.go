package monitor

import (
	"slices"
	"testing"

	"pnode/node/gossip"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhatASpareWouldAddIsToldOnce: of each member without a stage, in tokens per second, and again once its process is another one.
func TestWhatASpareWouldAddIsToldOnce(t *testing.T) {
	member := func(p plan.PeerID, epoch uint64, s consensus.MemberState) consensus.Member {
		return consensus.Member{Peer: p, ProcessEpoch: epoch, State: s}
	}
	spare := func(p plan.PeerID, with int64) gossip.Spare {
		return gossip.Spare{Peer: p, WithNanos: with, WithoutNanos: 2e9}
	}
	state := consensus.State{
		Run:  &plan.RunSpec{Model: model.Config{Context: 100}, Train: plan.TrainSpec{Micros: 10, MicroBatch: 1}},
		Plan: plan.Plan{Generation: 3, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}}}},
		Members: []consensus.Member{
			member("a", 1, consensus.Active), member("b", 1, consensus.Active), member("c", 1, consensus.Active),
			member("leaves", 1, consensus.Draining), member("me", 1, consensus.Active),
		},
	}
	found := gossip.Spares{Generation: 3, Members: []gossip.Spare{
		spare("a", 1e9), spare("b", 1e9), spare("c", 0), spare("leaves", 1e9), spare("me", 4e9), spare("stranger", 1e9),
	}}
	var w spareWatch
	want := []string{
		"b would help: 1,000 tokens/s are predicted with it, 500 tokens/s without. A change of plan has it once that pays",
		"c would add nothing now: no plan with it comes near the 500 tokens/s that are predicted without it. It gets a part when another node goes",
		"this node would add nothing now: 250 tokens/s are predicted for the best plan with it, 500 tokens/s without. It gets a part when another node goes",
	}
	if got := w.news(state, found, "me"); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	state.Members[2].ProcessEpoch = 2
	if got := w.news(state, found, "me"); len(got) != 1 || got[0] != want[1] {
		t.Errorf("after a start of c: %q, want its word alone", got)
	}
	if got := w.news(state, gossip.Spares{}, "me"); len(got) != 0 {
		t.Errorf("before the leader has compared anything: %q", got)
	}
}
