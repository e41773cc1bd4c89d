package pipeline

import (
	"testing"

	"pnode/planner/plan"
)

// TestALaterEndLeavesTheLearningRate: the rates of a run whose end was moved are those of a run that began with both ends.
func TestALaterEndLeavesTheLearningRate(t *testing.T) {
	before := plan.TrainSpec{Steps: 20, WarmupSteps: 5, LR: 1, MinLR: 0.1}
	after := before
	after.Steps, after.DecaySteps = 35, before.DecayEnd()
	for step := plan.Step(1); step <= after.Steps; step++ {
		want := 0.1
		if step <= before.Steps {
			want = LearningRate(before, step)
		}
		if got := LearningRate(after, step); got != want {
			t.Errorf("step %d trains at %g, want %g", step, got, want)
		}
	}
}
