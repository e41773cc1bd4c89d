package pipeline

import "testing"

// TestDropoutIsOfTrainingAlone evaluates the initial model, with dropout and without: the
// held-out loss before the first update is the same, the training loss is not.
func TestDropoutIsOfTrainingAlone(t *testing.T) {
	for name, run := range families() {
		run.Train.HeldOutEvery = 1
		run.Model.EmbedDropout, run.Model.ResidualDropout = 0, 0
		plain := train(t, run, cut(run, "1f1b", []int{0, 2}), &memoryKeeper{})
		run.Model.EmbedDropout, run.Model.ResidualDropout = 0.25, 0.25
		noisy := train(t, run, cut(run, "1f1b", []int{0, 2}), &memoryKeeper{})
		if noisy.heldOut[1] != plain.heldOut[1] {
			t.Errorf("%s: dropout changes the held-out loss", name)
		}
		if noisy.losses[1] == plain.losses[1] {
			t.Errorf("%s: dropout changes no loss of training", name)
		}
		if noisy.heldOut[2] == plain.heldOut[2] {
			t.Errorf("%s: dropout leaves the update as it was", name)
		}
	}
}
