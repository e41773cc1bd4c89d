package node

import (
	"testing"

	"pnode/planner"
)

func TestSummaryCounts(t *testing.T) {
	pipe := func(stages int) planner.Pipeline { return planner.Pipeline{Stages: make([]planner.Placement, stages)} }
	for _, tt := range []struct {
		pipes []planner.Pipeline
		want  string
	}{
		{[]planner.Pipeline{pipe(1)}, "generation 3 from step 40: 1 replica of 1 stage"},
		{[]planner.Pipeline{pipe(3)}, "generation 3 from step 40: 1 replica of 3 stages"},
		{[]planner.Pipeline{pipe(2), pipe(2)}, "generation 3 from step 40: 2 replicas of 2 stages"},
		{[]planner.Pipeline{pipe(3), pipe(2)}, "generation 3 from step 40: 2 replicas of 2 and 3 stages"},
	} {
		p := planner.Plan{Generation: 3, Start: 40, Replicas: tt.pipes}
		if got := summarize(p, nil); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
		if got := summarize(p, []string{"first plan", "more"}); got != tt.want+" (first plan)" {
			t.Errorf("got %q", got)
		}
	}
}
