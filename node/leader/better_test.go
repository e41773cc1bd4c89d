package leader

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestTheEndOfAWarmupEndsThePlan once there is a checkpoint that it does not pass, also where another plan would be no faster. The next one begins after it.
func TestTheEndOfAWarmupEndsThePlan(t *testing.T) {
	run := rehearsedRun()
	run.Train.Steps, run.Train.Sync = 100, plan.SyncRule{Local: true, WarmupPercent: 10}
	for _, c := range []struct {
		start, saved plan.Step
		local, ends  bool
	}{
		{start: 0, saved: 9},
		{start: 0, saved: 10, ends: true},
		{start: 8, saved: 14, ends: true},
		{start: 10, saved: 14}, // one replica alone
		{start: 14, saved: 18, local: true},
	} {
		s := consensus.State{Run: &run, Plan: plan.Plan{Generation: 2, Start: c.start}, Checkpoint: consensus.Checkpoint{Step: c.saved}}
		if c.local {
			s.Plan.Local = &plan.Local{}
		}
		if warmedUp(s) != c.ends {
			t.Errorf("a plan from step %d, local %t, with a checkpoint of step %d: ends: %t", c.start, c.local, c.saved, !c.ends)
		}
	}
	s := consensus.State{Run: &run, Plan: plan.Plan{Generation: 2}, Checkpoint: consensus.Checkpoint{Step: 10}}
	l := New(Config{Self: "a", Consensus: &oneLeader{}, Peers: strangers{}, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler)})
	if w := (&betterWatch{Leader: l}).look(moment{state: s}); !strings.HasPrefix(w.Better, "the warm-up of 10 steps has ended") {
		t.Errorf("%+v", w)
	}
}

// TestWhoIsLeftOutIsNotGone: where a member of the plan is left out for a fault, that is why there is to be another plan.
func TestWhoIsLeftOutIsNotGone(t *testing.T) {
	now := time.Unix(1000, 0)
	s := consensus.State{Plan: plan.Plan{Generation: 2, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}}}}}}
	for _, p := range []plan.PeerID{"a", "b", "c"} {
		s.Members = append(s.Members, consensus.Member{Peer: p, State: consensus.Active, Label: "node-" + string(p)})
	}
	blamed := &consensus.Blame{Peer: "b", Accuser: "a", Kind: plan.BadTensor, Step: 7, Detail: "element 0 is NaN", Until: now.Add(time.Minute).Unix()}
	for name, c := range map[string]struct {
		who  int
		want string
	}{"nobody": {-1, ""}, "of the plan": {1, "node-b is left out of plans until 00:17 UTC: element 0 is NaN at step 7 (says node-a)"}, "another one": {2, ""}} {
		x := s
		x.Members = slices.Clone(s.Members)
		if c.who >= 0 {
			x.Members[c.who].Blamed = blamed
		}
		if got := blamedIn(x, leftOut(x, now)); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
