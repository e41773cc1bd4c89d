package pipeline

import (
	"math"
	"testing"

	"pnode/planner/plan"
)

func TestLossesDoNotDependOnTheCut(t *testing.T) {
	run := testRun()
	want := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
	if first, last := math.Float64frombits(want.losses[1]), math.Float64frombits(want.losses[run.Train.Steps]); !(last < first) {
		t.Errorf("the loss went from %v to %v: nothing was learnt", first, last)
	}
	for _, c := range []struct {
		name, schedule string
		starts         []int
	}{
		{"two stages", "1f1b", []int{0, 3}},
		{"five stages", "1f1b", []int{0, 1, 2, 3, 4}},
		{"three stages of gpipe", "gpipe", []int{0, 1, 4}},
	} {
		equal(t, c.name, train(t, run, cut(run, c.schedule, c.starts), &memoryKeeper{}), want)
	}
}

func TestReplicasRepeatToTheBitHoweverTheyAreCut(t *testing.T) {
	run := testRun()
	want := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), &memoryKeeper{})
	equal(t, "unlike cuts", train(t, run, cut(run, "1f1b", []int{0, 2}, []int{0, 1, 4}), &memoryKeeper{}), want)
}

func TestResumeOnAnotherCutGivesTheSameLosses(t *testing.T) {
	run := testRun()
	keeper := &memoryKeeper{}
	whole := train(t, run, cut(run, "1f1b", []int{0, 2}), keeper)
	equal(t, "resumed", resume(t, run, keeper), whole.after(run.Train.CheckpointEvery))
}

// resume goes on from the first checkpoint, in three stages.
func resume(t *testing.T, run plan.RunSpec, keeper *memoryKeeper) result {
	t.Helper()
	rest := cut(run, "1f1b", []int{0, 1, 3})
	rest.Start, rest.Generation = run.Train.CheckpointEvery, 2
	return train(t, run, rest, keeper)
}

// after returns the results of the steps after one.
func (r result) after(start plan.Step) result {
	rest := newResult()
	for step, bits := range r.losses {
		if step > start {
			rest.losses[step] = bits
		}
	}
	for step, bits := range r.heldOut {
		if step > start {
			rest.heldOut[step] = bits
		}
	}
	for step, bits := range r.floats {
		if step > start {
			rest.floats[step] = bits
		}
	}
	return rest
}
