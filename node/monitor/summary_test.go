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
		if got := summarize(p, nil); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		if got := summarize(p, []string{"first plan", "more"}); got != tt.want+" (first plan)" {
			t.Errorf("got %q", got)
		}
	}
	p := plan.Plan{Generation: 3, Schedule: "zb-v", Replicas: []plan.Pipeline{pipe(4)}}
	for i := range p.Replicas[0].Stages {
		p.Replicas[0].Stages[i].Device = []string{"cpu", "cuda:0", "cuda:0", "cpu"}[i]
	}
	if got, want := summarize(p, nil), "generation 3 from step 0: 1 replica of 4 stages on 2 devices, 2 stages each, under zb-v"; got != want {
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
