package monitor

import (
	"strings"
	"testing"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestSummaryCounts(t *testing.T) {
	pipe := func(stages int) plan.Pipeline { return plan.Pipeline{Stages: make([]plan.Placement, stages)} }
	for _, tt := range []struct {
		pipes []plan.Pipeline
		want  string
	}{
		{[]plan.Pipeline{pipe(1)}, "generation 3 from step 40: 1 replica of 1 stage"},
		{[]plan.Pipeline{pipe(3)}, "generation 3 from step 40: 1 replica of 3 stages"},
		{[]plan.Pipeline{pipe(2), pipe(2)}, "generation 3 from step 40: 2 replicas of 2 stages"},
		{[]plan.Pipeline{pipe(3), pipe(2)}, "generation 3 from step 40: 2 replicas of 2 and 3 stages"},
	} {
		p := plan.Plan{Generation: 3, Start: 40, Schedule: plan.ScheduleName, Replicas: tt.pipes}
		if got := summarize(p, ""); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		if got := summarize(p, "first plan"); got != tt.want+" (first plan)" {
			t.Errorf("got %q", got)
		}
	}
	p := plan.Plan{Generation: 3, Schedule: "zb-v", Replicas: []plan.Pipeline{pipe(4)}}
	for i := range p.Replicas[0].Stages {
		p.Replicas[0].Stages[i].Device = []string{"cpu", "cuda:0", "cuda:0", "cpu"}[i]
	}
	if got, want := summarize(p, ""), "generation 3 from step 0: 1 replica of 4 stages on 2 devices, 2 stages each, under zb-v"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestAStoppedRunSaysHowThisNodeGoesOn: only an owner's node resumes, and only an end that has not failed gives nothing up.
func TestAStoppedRunSaysHowThisNodeGoesOn(t *testing.T) {
	m := Monitor{Config: Config{Self: "b", Dir: "/data/run7"}}
	state := consensus.State{Run: &plan.RunSpec{}, Owners: []plan.PeerID{"a"}, Checkpoint: consensus.Checkpoint{Step: 7}}
	for _, want := range []string{"go on with `pnode join --dir /data/run7`", "go on with `pnode train --resume --dir /data/run7`"} {
		if done := m.doneEvent(state); !strings.HasSuffix(done.Message, want) || !done.Settled {
			t.Errorf("%q, want %q; settled %v", done.Message, want, done.Settled)
		}
		state.Owners = append(state.Owners, "b")
	}
}

// TestAStoppedRunSaysWhatItGivesUp: steps that are computed again, and layers that nobody has who is left.
func TestAStoppedRunSaysWhatItGivesUp(t *testing.T) {
	layer := func(l int, holders ...plan.PeerID) consensus.LayerRef {
		return consensus.LayerRef{Layer: l, Holders: holders}
	}
	state := consensus.State{
		Run:        &plan.RunSpec{},
		Members:    []consensus.Member{{Peer: "a", Label: "n0", State: consensus.Gone}, {Peer: "b", Label: "n1"}, {Peer: "c", Label: "n2", State: consensus.Gone}},
		Checkpoint: consensus.Checkpoint{Step: 3, Layers: []consensus.LayerRef{layer(0, "b", "a"), layer(1, "b")}},
	}
	lost := state
	lost.Checkpoint.Layers = []consensus.LayerRef{layer(0, "b"), layer(1, "c", "a")}
	older := lost
	older.Older = []consensus.Checkpoint{{Step: 2, Layers: []consensus.LayerRef{layer(0, "b"), layer(1, "b")}}}
	for _, c := range []struct {
		state  consensus.State
		newest plan.Step
		want   string
	}{
		{state, 3, "the checkpoint of step 3 is safe"},
		{state, 4, "the checkpoint of step 3 is stored, and step 4 is computed again"},
		{state, 9, "the checkpoint of step 3 is stored, and steps 4 to 9 are computed again"},
		{lost, 3, "the checkpoint of step 3 needs layers that n0 and n2 alone had: start one that has them, too"},
		{older, 9, "the checkpoint of step 3 needs layers that n0 and n2 alone had: start one that has them, too, or the run goes back to step 2; steps 4 to 9 are computed again"},
	} {
		if got := RestText(c.state, c.newest); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// TestReasonsCallMembersByName: a member's error names others by their IDs, which tell people nothing.
func TestReasonsCallMembersByName(t *testing.T) {
	const known, unknown = "12D3KooWRZTNUeSeJEJ5711hQbo7Q2tECPPFaB2Q6Y4YEAqqdZek", "12D3KooWQHdMMVLSLpVKVsY2ppbmZuUxzsLSjTZYQ3rCeNMpCYKB"
	state := consensus.State{
		Members: []consensus.Member{{Peer: known, Label: "attic"}},
		Reasons: []string{"a member gave the generation up: receive gradient from " + known + ", not from " + unknown, "older"},
	}
	if got, want := reasonOf(state), "a member gave the generation up: receive gradient from attic, not from …eNMpCYKB"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if got := reasonOf(consensus.State{}); got != "" {
		t.Errorf("%q without a reason", got)
	}
}
