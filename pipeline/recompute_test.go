package pipeline

import (
	"testing"

	"pnode/pipeline/model"
	"pnode/planner"
)

// lean are the levels that drop something.
var lean = []model.Recompute{model.RecomputeOutputs, model.RecomputeBlock}

func TestRecomputationGivesTheSameLosses(t *testing.T) {
	runs := families()
	runs["gpt2"] = testRun()
	for name, run := range runs {
		run.Train.Steps = 3
		want := train(t, run, cut(run, "1f1b", []int{0, 1, 3}), &memoryKeeper{})
		for _, level := range lean {
			run.Train.Recompute = level
			equal(t, name+" "+level.String(), train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{}), want)
			equal(t, name+" "+level.String()+" in three stages", train(t, run, cut(run, "1f1b", []int{0, 1, 3}), &memoryKeeper{}), want)
		}
	}
}

// TestRecomputationSavesMemory wants less for each level than for the one before, on a stage
// with blocks and several micro-batches in flight.
func TestRecomputationSavesMemory(t *testing.T) {
	for name, run := range families() {
		plan := cut(run, "1f1b", []int{0, 3, 4})
		before := stageBytes(t, run, plan)
		for _, level := range lean {
			run.Train.Recompute = level
			got := stageBytes(t, run, plan)
			if got >= before {
				t.Errorf("%s: %v takes %d bytes, the level before it %d", name, level, got, before)
			}
			before = got
		}
	}
}

// stageBytes is what the first stage takes.
func stageBytes(t *testing.T, run planner.RunSpec, plan planner.Plan) int64 {
	t.Helper()
	m, err := Memory(run, plan, planner.Holding{})
	if err != nil {
		t.Fatal(err)
	}
	return m.Total()
}
