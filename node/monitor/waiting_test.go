package monitor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestWhyNothingMoves(t *testing.T) {
	seven := time.Date(2026, 7, 1, 14, 7, 30, 0, time.UTC)
	away := []awayVoter{{"b", seven.Add(-4 * time.Minute), false, seven.Add(-4 * time.Minute)}, {"c", seven, true, seven}}
	lost := "offline: b (since 14:03), c (not heard since this node was started at 14:07); 2 of the run's 3 voting machines must be up, 1 now. Start one of them again in its folder (`pnode train --resume` or `pnode join`). Nothing is lost: the checkpoint of step 50 is kept. "
	three := consensus.Quorum{Voters: []plan.PeerID{"a", "b", "c"}}
	for _, c := range []struct {
		name string
		view waitView
		want string
	}{
		{"all is well", waitView{Quorum: three}, ""},
		{"an election is no news", waitView{Quorum: three, Leaderless: electionTime, Away: away}, ""},
		{
			"the majority is away",
			waitView{Quorum: three, Leaderless: 2 * electionTime, Away: away, Checkpoint: 50, Stalled: 2, Dir: "/run/7"},
			lost + "Gone for good: `pnode recover --dir /run/7`, from 14:18 on",
		},
		{
			"a voter is away since another day",
			waitView{Now: seven.Add(15 * time.Hour), Quorum: three, Leaderless: 2 * electionTime, Away: []awayVoter{{Name: "b", Since: seven}, {Name: "c", Since: seven.Add(14 * time.Hour), Counts: seven.Add(14 * time.Hour)}}, Checkpoint: 50, Dir: "/run/7"},
			strings.Replace(lost, "b (since 14:03), c (not heard since this node was started at 14:07)", "b (since Jul 1 14:07), c (since 04:07)", 1) + "Gone for good: `pnode recover --dir /run/7`, from 04:18 on",
		},
		{
			"the majority is away, and the run recovers by itself",
			waitView{Quorum: three, Leaderless: 2 * electionTime, Away: away, Checkpoint: 50, RecoverAfter: 20 * time.Minute},
			lost + "This node recovers the run without them after 20 min (--on-lost-majority)",
		},
		{
			"the majority is away from one that comes back",
			waitView{Quorum: three, Leaderless: 2 * electionTime, Away: away, Checkpoint: 50, Dir: "/run/7", Trying: "desk", Deadline: Deadline{At: seven.Add(15 * time.Minute)}},
			lost + "Gone for good: start this node with `pnode train --resume --on-lost-majority recover-after=10m --dir /run/7`. Trying desk until 14:22:30; Ctrl-C ends that and loses nothing",
		},
		{
			"the majority is away, and steps came after the checkpoint",
			waitView{Quorum: three, Leaderless: 2 * electionTime, Away: away, Checkpoint: 14, Reached: 21, Dir: "/run/7"},
			strings.Replace(lost, "Nothing is lost: the checkpoint of step 50 is kept", "The checkpoint of step 14 is kept; steps 15 to 21 may be done again", 1) +
				"Gone for good: `pnode recover --dir /run/7`, from 14:18 on",
		},
		{
			"the owner of a stopped run is away",
			waitView{
				Quorum: consensus.Quorum{Voters: []plan.PeerID{"b"}}, Leaderless: 2 * electionTime, Away: away[:1], Checkpoint: 50, Dir: "/run/7",
				Stopped: "the run was stopped: it goes on when its owner, b, resumes it",
			},
			"the run was stopped: it goes on when its owner, b, resumes it. Now offline: b (since 14:03), the run's only voting machine. " +
				"Nothing is lost: the checkpoint of step 50 is kept. Gone for good: `pnode recover --dir /run/7`, from 14:14 on",
		},
		{
			"the owner of a stopped run is away from one that comes back",
			waitView{
				Quorum: consensus.Quorum{Voters: []plan.PeerID{"b"}}, Leaderless: 2 * electionTime, Away: away[:1], Checkpoint: 50, Dir: "/run/7",
				Stopped: "the run was stopped: it goes on when its owner, b, resumes it", Trying: "desk", Deadline: Deadline{At: seven.Add(15 * time.Minute)},
			},
			"the run was stopped: it goes on when its owner, b, resumes it. Now offline: b (since 14:03), the run's only voting machine. " +
				"Nothing is lost: the checkpoint of step 50 is kept. Gone for good: start this node with `pnode train --resume --on-lost-majority recover-after=10m --dir /run/7`. " +
				"Trying desk until 14:22:30; Ctrl-C ends that and loses nothing",
		},
		{
			"another goes on",
			waitView{Quorum: three, Leaderless: 2 * electionTime, Away: away, Apart: "c", Dir: "/run/7"},
			"c was recovered without this node and goes on with the run. `pnode recover --dir /run/7` has this node follow it; what it has done since then does not count any more",
		},
		{"a majority is there", waitView{Quorum: three, Leaderless: 2 * electionTime, Away: away[:1]}, "the run has no leader: its voters are electing one, or this node is cut off from them"},
		{
			"a majority is there, and still elects nobody",
			waitView{Quorum: three, Leaderless: 2 * votesMovedTime, Away: away[1:]},
			"the run has no leader, though 2 of the 3 voters that this node knows are up: they elect one, this node is cut off from them, or votes have moved since its log ended. Start c, too",
		},
		{"all voters are there", waitView{Quorum: three, Leaderless: 2 * electionTime}, "the run has no leader: its voters are electing one, or this node is cut off from them"},
		{
			"nobody answers a node that comes back",
			waitView{Leaderless: 2 * electionTime, Trying: "desk and lab", Deadline: Deadline{At: seven.Add(2 * time.Minute), Deserted: true}},
			"no leader of the run answers yet. Trying desk and lab until 14:09:30, as their machines say that no node runs there; Ctrl-C ends that and loses nothing",
		},
		{"no deadline counts yet, or any more", waitView{Leaderless: 2 * electionTime, Trying: "desk"}, "no leader of the run answers yet. Trying desk; Ctrl-C ends that and loses nothing"},
		{"one that comes back is expected", waitView{Quorum: three, Trying: "desk", Deadline: Deadline{At: seven.Add(15 * time.Minute)}}, ""},
		{
			"a node of a finished run serves",
			waitView{Finished: true, Serving: "until an owner has the model", Quorum: three, Leaderless: 2 * electionTime, Away: away, Stalled: 2},
			"until an owner has the model",
		},
		{
			"one that comes back to a finished run to extend it",
			waitView{Finished: true, Quorum: three, Leaderless: 2 * electionTime, Away: away, Checkpoint: 50, Dir: "/run/7", Trying: "desk"},
			lost + "Gone for good: start this node with `pnode train --resume --on-lost-majority recover-after=10m --dir /run/7`. Trying desk; Ctrl-C ends that and loses nothing",
		},
		{"one that comes back to a finished run with a leader", waitView{Finished: true, Quorum: three, Trying: "desk", Stalled: 2}, ""},
		{"a new node", waitView{Leaderless: 2 * electionTime}, "no leader of the run answers yet"},
		{"the planner cannot plan", waitView{Quorum: three, Blocked: "too little memory", Stalled: 3}, "too little memory"},
		{"the planner could not plan", waitView{Quorum: three, Blocked: "1 node so far", Training: true}, ""},
		{"left out", waitView{Quorum: three, NotUsed: "until 14:05 UTC: sent what is not finite at step 12 (says b)"}, "this node is in the run, but not used until 14:05 UTC: sent what is not finite at step 12 (says b)"},
		{"left out, but needed", waitView{Quorum: three, NotUsed: "until 14:05 UTC", Training: true}, ""},
		{"diverged", waitView{Quorum: three, Diverged: "the run has diverged", Stalled: 3}, "the run has diverged"},
		{"a generation is replayed", waitView{Quorum: three, Stalled: 3, StallWhy: errors.New("lost b"), Replay: "a computes b's steps"}, "a computes b's steps"},
		{"a generation was given up", waitView{Quorum: three, Stalled: 3, StallWhy: fmt.Errorf("generation: %w", errors.New("link: lost b"))}, "generation 3 was given up, a new plan will follow: lost b"},
	} {
		if c.view.Now.IsZero() {
			c.view.Now = seven
		}
		if _, got := c.view.why(); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestWhoIsTriedIsNamed: each member once, by its name where it has one, and no raw address.
func TestWhoIsTriedIsNamed(t *testing.T) {
	state := consensus.State{Members: []consensus.Member{{Peer: "a", Label: "desk"}, {Peer: "b", Label: "spot"}}}
	for want, addrs := range map[string][]string{
		"":              nil,
		"desk":          {"/ip4/192.0.2.1/udp/4001/quic-v1/p2p/a", "/ip4/192.0.2.1/tcp/4001/p2p/a"},
		"desk and spot": {"/ip4/192.0.2.1/tcp/4001/p2p/a", "/ip4/192.0.2.9/tcp/4001/p2p/r/p2p-circuit/p2p/b"},
		"desk, …stranger at 192.0.2.7:4002, c at [2001:db8::1]:4003 and 1 more": {
			"/ip4/192.0.2.1/tcp/4001/p2p/a", "/ip4/192.0.2.7/udp/4002/quic-v1/p2p/12D3KooWxstranger", "/ip6/2001:db8::1/tcp/4003/p2p/c", "/ip4/192.0.2.2/tcp/4001/p2p/b",
		},
		"z": {"/p2p/z"},
	} {
		if got := Tried(state, addrs); got != want {
			t.Errorf("%v: %q, want %q", addrs, got, want)
		}
	}
}

func TestWaitingIsToldOnceAndNotAtOnce(t *testing.T) {
	var w shownWait
	now := time.Unix(1000, 0)
	for i, c := range []struct {
		why, done string
		after     time.Duration
		want      bool
	}{
		{"lost b", "", 0, false},
		{"lost b", "", showAfter, true},
		{"lost b", "", 2 * showAfter, false},
		{"lost c", "", 3 * showAfter, false},
		{"", "", 4 * showAfter, false},
		{"lost c", "", 5 * showAfter, false},
		{"lost c", "1 step", 6 * showAfter, true},
		{"lost c", "2 steps", 7 * showAfter, false},
		{"lost c", "3 steps", 6*showAfter + showAgain, true},
		{"lost c", "3 steps", 6*showAfter + 2*showAgain, false},
		{"lost c", "4 steps", 6*showAfter + 2*showAgain, true},
	} {
		if got := w.due(c.why, c.done, now.Add(c.after)); got != c.want {
			t.Errorf("look %d at %q: %v, want %v", i, c.why, got, c.want)
		}
	}
}

func TestReplaysAreTold(t *testing.T) {
	p := plan.Plan{Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}, {Peer: "b"}, {Peer: "c"}}}}}
	part := func(stage plan.Stage, by plan.PeerID, from plan.Step) consensus.SalvagePart {
		return consensus.SalvagePart{Stage: stage, By: by, From: from}
	}
	state := consensus.State{
		Plan:       p,
		Members:    []consensus.Member{{Peer: "a", Label: "desk"}, {Peer: "b", Label: "spot"}, {Peer: "c", Label: "lab"}},
		Checkpoint: consensus.Checkpoint{Step: 4},
	}
	beats := gossip.NewTracker()
	for _, c := range []struct {
		name  string
		parts []consensus.SalvagePart
		step  plan.Step
		want  string
	}{
		{"a replay", []consensus.SalvagePart{part(0, "a", 0), part(1, "a", 4), part(2, "a", 4)}, 9, "desk computes steps 5 to 9 of lab and spot again, from the messages of the others; a new plan goes on from there"},
		{"all live", []consensus.SalvagePart{part(0, "a", 0), part(1, "b", 0), part(2, "c", 0)}, 9, ""},
		{"it is saved", []consensus.SalvagePart{part(0, "a", 0), part(1, "a", 4), part(2, "a", 4)}, 4, ""},
	} {
		state.Salvage = &consensus.Salvage{Step: c.step, Parts: c.parts}
		if got, done := replayText(state, beats); got != c.want || done != "" {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	state.Salvage = &consensus.Salvage{Step: 9, Parts: []consensus.SalvagePart{part(0, "a", 0), part(1, "a", 4), part(2, "c", 9)}}
	for step, want := range map[plan.Step]string{4: "", 6: " (2 of 5 steps so far)", 9: " (5 of 5 steps so far)", 10: ""} {
		beats.Note(gossip.Heartbeat{Peer: "a", Replayed: step}, time.Now())
		if got, done := replayText(state, beats); !strings.Contains(got, "of spot again") || done != want {
			t.Errorf("at step %d: %q, %q", step, got, done)
		}
	}
	state.StopWanted = true
	if got, _ := replayText(state, beats); !strings.HasSuffix(got, "; the run stops once that is saved") {
		t.Errorf("at a stop: %q", got)
	}
	state.Salvage = nil
	if got, _ := replayText(state, beats); got != "" {
		t.Errorf("without a salvage: %q", got)
	}
}
