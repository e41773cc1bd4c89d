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
