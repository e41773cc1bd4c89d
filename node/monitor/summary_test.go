package monitor

import (
	"testing"

	"pnode/planner/plan"
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
