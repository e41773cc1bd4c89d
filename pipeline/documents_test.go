package pipeline

import (
	"testing"

	"pnode/planner/plan"
)

// TestDocumentMaskDoesNotDependOnTheCut has a stage in the middle that knows its documents,
// and wants other losses than without the mask.
func TestDocumentMaskDoesNotDependOnTheCut(t *testing.T) {
	t.Parallel()
	runs := families()
	runs["gpt2"] = testRun()
	for name, run := range runs {
		plain := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
		run.Train.DocumentMask = true
		keeper := &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", []int{0}), keeper)
		if want.losses[1] == plain.losses[1] || want.heldOut[2] == plain.heldOut[2] {
			t.Errorf("%s: the mask changes no loss", name)
		}
		equal(t, name+" in three stages", train(t, run, cut(run, "1f1b", []int{0, 2, 3}), &memoryKeeper{}), want)
		equal(t, name+" with ends apart", train(t, run, cut(run, "1f1b", []int{0, 1, 2, 4}), &memoryKeeper{}), want)
		again := cut(run, "1f1b", []int{0, 1, 3})
		again.Start = run.Train.CheckpointEvery
		resumed := train(t, run, again, keeper)
		for step := plan.Step(1); step <= again.Start; step++ {
			delete(want.losses, step)
			delete(want.heldOut, step)
		}
		equal(t, name+" resumed", resumed, want)
	}
}
