package node

import (
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestWhoWasCutOffJoinsAgain feeds looks of a node that is in generation 2 and knows no leader from the first one on.
func TestWhoWasCutOffJoinsAgain(t *testing.T) {
	beat := func(g plan.Generation, finished plan.Step, ago time.Duration) []heardBeat {
		return []heardBeat{{gossip.Heartbeat{Generation: g, Finished: finished}, ago}}
	}
	state, over := consensus.State{Plan: plan.Plan{Generation: 2}}, consensus.State{Plan: plan.Plan{Generation: 2}, Finished: true}
	for name, c := range map[string]struct {
		state  consensus.State
		heard  []heardBeat
		after  time.Duration
		leader plan.PeerID
		want   bool
	}{
		"others are further":               {state, beat(3, 0, time.Second), 11 * time.Second, "", true},
		"others have finished":             {state, beat(2, 60, time.Second), 11 * time.Second, "", true},
		"an election is under way":         {state, beat(3, 0, time.Second), 9 * time.Second, "", false},
		"a leader is there":                {state, beat(3, 0, time.Second), time.Minute, "a", false},
		"others wait too":                  {state, beat(2, 0, time.Second), time.Minute, "", false},
		"nobody is heard":                  {state, nil, time.Minute, "", false},
		"who was further is silent again":  {state, beat(3, 0, time.Minute), 2 * time.Minute, "", false},
		"this node knows that it finished": {over, beat(2, 60, time.Second), time.Minute, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			var cut cutOff
			begin := time.Unix(1000, 0)
			if cut.look("", c.state, c.heard, begin) {
				t.Error("it joins at the first look")
			}
			if got := cut.look(c.leader, c.state, c.heard, begin.Add(c.after)); got != c.want {
				t.Errorf("joins: %t, want %t", got, c.want)
			}
		})
	}
}

// TestARecoverySaysWhatIsLeft: the oldest state to go on from is a checkpoint with all layers of members that are not gone.
func TestARecoverySaysWhatIsLeft(t *testing.T) {
	with := func(step plan.Step, holders ...plan.PeerID) consensus.Checkpoint {
		c := consensus.Checkpoint{Step: step, Generation: 1}
		for l, p := range holders {
			c.Layers = append(c.Layers, consensus.LayerRef{Layer: l, Holders: []plan.PeerID{p}})
		}
		return c
	}
	members := []consensus.Member{{Peer: "a", Label: "desk", State: consensus.Active}, {Peer: "b", Label: "lab", State: consensus.Gone}}
	recovery := &consensus.Recovery{By: "a", Dead: []plan.PeerID{"b"}}
	const begin = "the run was recovered by desk without lab: incarnation 2 goes on "
	for _, c := range []struct {
		newest consensus.Checkpoint
		older  []consensus.Checkpoint
		want   string
	}{
		{want: begin + "from the newest state that its members hold, the checkpoint of step 0 at the oldest"},
		{with(8, "a", "a"), nil, begin + "from the newest state that its members hold, the checkpoint of step 8 at the oldest"},
		{with(8, "b", "a"), []consensus.Checkpoint{with(6, "b", "a"), with(4, "a", "a")}, begin + "from the newest state that its members hold, the checkpoint of step 4 at the oldest"},
		{with(8, "b", "a"), []consensus.Checkpoint{with(6, "a", "b")}, begin + "as soon as its members have all of a state. No checkpoint is whole with them: of that of step 8 they lack 1 of 2 layers"},
	} {
		state := consensus.State{Incarnation: 2, Members: members, Checkpoint: c.newest, Older: c.older}
		if got := changeText(consensus.ChangeOver{Recovery: recovery}, state, 0); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}
