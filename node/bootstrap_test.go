package node

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
)

// TestHeartbeatSaysFinished: a member that only says so does not end another node's way back into a run that goes on.
// An owner, or most of the voters, may.
func TestHeartbeatSaysFinished(t *testing.T) {
	for _, c := range []struct {
		name   string
		says   map[plan.PeerID]plan.Step
		voters []plan.PeerID
		want   plan.Step
	}{
		{"nobody", nil, []plan.PeerID{"a", "b", "c"}, 0},
		{"one that is no voter", map[plan.PeerID]plan.Step{"x": 40}, []plan.PeerID{"a", "b", "c"}, 0},
		{"many that are none", map[plan.PeerID]plan.Step{"x": 40, "y": 40, "z": 40}, []plan.PeerID{"a", "b", "c"}, 0},
		{"one voter of three", map[plan.PeerID]plan.Step{"b": 40, "x": 40}, []plan.PeerID{"a", "b", "c"}, 0},
		{"two of three", map[plan.PeerID]plan.Step{"b": 40, "c": 40, "x": 90}, []plan.PeerID{"a", "b", "c"}, 40},
		{"two of three, of different steps", map[plan.PeerID]plan.Step{"b": 40, "c": 41}, []plan.PeerID{"a", "b", "c"}, 0},
		{"the only voter", map[plan.PeerID]plan.Step{"a": 40}, []plan.PeerID{"a"}, 40},
		{"an owner", map[plan.PeerID]plan.Step{"owner": 40, "x": 90}, []plan.PeerID{"a", "b", "c"}, 40},
		{"a member, where no voter is known", map[plan.PeerID]plan.Step{"x": 40}, nil, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				heard := gossip.NewTracker()
				heard.Note(gossip.Heartbeat{Peer: "t", Phase: string(Training), Step: 5}, time.Now())
				for p, step := range c.says {
					heard.Note(gossip.Heartbeat{Peer: p, Phase: string(Stopped), Finished: step}, time.Now())
				}
				words := func() endWords {
					return endWords{Said: heard.Finished(), Voters: c.voters, Owner: func(p plan.PeerID) bool { return p == "owner" }}
				}
				told := 0
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				if step := awaitFinished(ctx, words, func(endWords) { told++ }); step != c.want {
					t.Errorf("the run was finished at step %d, want %d", step, c.want)
				}
				if want := c.want == 0 && c.says != nil; (told == 1) != want {
					t.Errorf("told %d times", told)
				}
			})
		})
	}
	doubt := endWords{Said: map[plan.PeerID]plan.Step{"x": 40}, Voters: []plan.PeerID{"a"}}.doubt(plan.PeerID.Short)
	for _, want := range []string{plan.PeerID("x").Short(), "step 40", "pnode checkpoints"} {
		if !strings.Contains(doubt, want) {
			t.Errorf("%q lacks %q", doubt, want)
		}
	}
}
