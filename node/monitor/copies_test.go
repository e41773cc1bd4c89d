package monitor

import (
	"testing"

	"pnode/node/api"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhatACheckpointWithoutCopiesCostsIsTold: nothing where it is held twice, then from where its layers are computed again, and what
// is missing for that.
func TestWhatACheckpointWithoutCopiesCostsIsTold(t *testing.T) {
	checkpoint := func(step plan.Step, holders ...plan.PeerID) consensus.Checkpoint {
		return consensus.Checkpoint{Step: step, Generation: 1, Layers: []consensus.LayerRef{{Holders: holders}}}
	}
	s := consensus.State{
		Members: []consensus.Member{{Peer: "a", State: consensus.Active}, {Peer: "b", State: consensus.Active}},
		Plan:    plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Holder: "b", Layers: plan.LayerRange{End: 1}}}}}},
	}
	for _, c := range []struct {
		newest   consensus.Checkpoint
		older    []consensus.Checkpoint
		messages plan.Step
		want     api.Copies
	}{
		{consensus.Checkpoint{}, nil, 1, api.Copies{}},
		{checkpoint(20, "a", "b"), nil, 21, api.Copies{}},
		{checkpoint(20, "a"), []consensus.Checkpoint{checkpoint(16, "a"), checkpoint(12, "a", "b"), checkpoint(8, "a", "b")}, 13, api.Copies{
			Step: 12, MessagesFrom: 13,
			Text: "a layer of the checkpoint of step 20 is not on two machines: if it is lost, it is computed again from step 12 on, which has each on two",
		}},
		{checkpoint(20, "a"), []consensus.Checkpoint{checkpoint(12, "a", "b")}, 15, api.Copies{
			Step: 12, MessagesFrom: 15,
			Text: "a layer of the checkpoint of step 20 is not on two machines, step 12 has each on two. Of the messages since then this node has those from step 15 on: losing a machine may cost steps",
		}},
		{checkpoint(20, "a"), []consensus.Checkpoint{checkpoint(12, "a")}, 1, api.Copies{
			MessagesFrom: 1,
			Text:         "a layer of the checkpoint of step 20 is not on two machines, and none has each layer on two: losing a machine may cost steps",
		}},
	} {
		s.Checkpoint, s.Older = c.newest, c.older
		got := copiesOf(s, c.messages)
		if got == nil {
			got = &api.Copies{}
		}
		if *got != c.want {
			t.Errorf("checkpoint %d, messages from %d on: %+v, want %+v", c.newest.Step, c.messages, *got, c.want)
		}
	}
}
