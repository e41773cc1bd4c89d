package leader

import (
	"testing"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestNobodyIsWaitedForWhoHadLayersInMemory: where the whole run is started again, what only processes had that have ended is lost. A member that has
// stored a layer is waited for.
func TestNobodyIsWaitedForWhoHadLayersInMemory(t *testing.T) {
	place := func(p plan.PeerID) plan.Placement { return plan.Placement{Peer: p} }
	state := consensus.State{
		Plan:       plan.Plan{Generation: 2, Replicas: []plan.Pipeline{{Stages: []plan.Placement{place("a"), place("b")}}}},
		PlanEpoch:  1,
		Checkpoint: consensus.Checkpoint{Step: 20, Layers: []consensus.LayerRef{{Holders: []plan.PeerID{"a"}}, {Layer: 1, Holders: []plan.PeerID{"b"}}}},
		Older:      []consensus.Checkpoint{{Step: 10, Layers: []consensus.LayerRef{{Holders: []plan.PeerID{"a"}}, {Layer: 1, Holders: []plan.PeerID{"a"}}}}},
		Members: []consensus.Member{
			{Peer: "a", State: consensus.Active, Since: 5, ProcessEpoch: 9}, {Peer: "b", State: consensus.Gone, ProcessEpoch: 4},
		},
	}
	seen := &sightings{of: map[process]*sighting{}}
	for _, epoch := range []uint64{4, 5, 9} {
		for _, p := range []plan.PeerID{"a", "b"} {
			seen.of[process{p, epoch}] = &sighting{heard: time.Unix(999, 0)}
		}
	}
	lookAfter := func(waited time.Duration) absentHolders {
		began := time.Unix(1000, 0)
		return (&salvageWatch{starting: began}).absent(moment{state: state, now: began.Add(waited), seen: seen}, "a", time.Minute)
	}
	look := func() absentHolders { return lookAfter(0) }
	if got := look(); len(got.Layers) != 1 || got.Over || !got.Coming || got.Back != 10 {
		t.Errorf("%+v: b has stored layer 1", got)
	}
	if got := lookAfter(comeFor); got.Over || got.Coming {
		t.Errorf("%+v: b had the time to come", got)
	}
	state.Checkpoint.Layers[1].Unstored = []consensus.Process{{Peer: "b", ProcessEpoch: 4}}
	if got := look(); len(got.Layers) != 1 || got.Over || !got.Coming || got.Back != 10 {
		t.Errorf("%+v: b had layer 1 in memory, and may have stored it before it ended", got)
	}
	if got := lookAfter(comeFor); len(got.Layers) != 1 || !got.Over || got.Back != 10 {
		t.Errorf("%+v: b had layer 1 in memory, and does not come", got)
	}
	state.Members[1].Reason = consensus.ReasonLeft
	if got := look(); !got.Over || got.Coming {
		t.Errorf("%+v: b left the run", got)
	}
	state.Members[1] = consensus.Member{Peer: "b", State: consensus.Active, Since: 6, ProcessEpoch: 5}
	if got := look(); len(got.Layers) != 1 || !got.Over {
		t.Errorf("%+v: b was started again", got)
	}
	state.Checkpoint.Layers[0].Unstored = []consensus.Process{{Peer: "a", ProcessEpoch: 9}}
	if got := look(); len(got.Layers) != 1 || got.Layers[0].Layer != 1 {
		t.Errorf("%+v: the process of a has layer 0 still", got)
	}
	state.Checkpoint.Layers[0].Unstored, state.Members[0].State = nil, consensus.Joining
	if got := look(); len(got.Layers) != 1 || got.Layers[0].Layer != 1 {
		t.Errorf("%+v: a has stored layer 0, and is about to enter", got)
	}
}
