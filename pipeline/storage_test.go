package pipeline

import (
	"math"
	"testing"

	"pnode/pipeline/model"
)

// TestHalvesGiveTheSameLossesOnAnyCut trains with BF16 storage, on replicas too, and goes on
// from a checkpoint on another cut.
func TestHalvesGiveTheSameLossesOnAnyCut(t *testing.T) {
	runs := families()
	runs["gpt2"] = testRun()
	for name, run := range runs {
		run.Train.Storage = model.StorageBF16
		keeper := &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", []int{0}), keeper)
		equal(t, name+" in three stages", train(t, run, cut(run, "gpipe", []int{0, 1, 3}), &memoryKeeper{}), want)
		equal(t, name+" resumed", resume(t, run, keeper), want.after(run.Train.CheckpointEvery))
	}
	run := testRun()
	run.Train.Storage = model.StorageBF16
	want := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), &memoryKeeper{})
	equal(t, "replicas of unlike cuts", train(t, run, cut(run, "1f1b", []int{0, 2}, []int{0, 1, 4}), &memoryKeeper{}), want)
}

// TestEitherStorageResumesTheOther goes on with float32 from a checkpoint of BF16 storage,
// and the other way round: the losses stay beside those of the run that wrote it.
func TestEitherStorageResumesTheOther(t *testing.T) {
	for _, pair := range [][2]model.Storage{{model.StorageBF16, model.StorageF32}, {model.StorageF32, model.StorageBF16}} {
		run := testRun()
		run.Train.Storage = pair[0]
		keeper := &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", []int{0}), keeper).after(run.Train.CheckpointEvery)
		run.Train.Storage = pair[1]
		beside(t, resume(t, run, keeper), want)
	}
}

// beside wants the losses of got within the precision of BF16 of those wanted, but not the
// same.
func beside(t *testing.T, got, want result) {
	t.Helper()
	same := true
	for step, bits := range want.losses {
		g, w := math.Float64frombits(got.losses[step]), math.Float64frombits(bits)
		if math.Abs(g-w) > 5e-3*w {
			t.Errorf("loss of step %d is %v, want about %v", step, g, w)
		}
		same = same && g == w
	}
	if same || len(got.losses) != len(want.losses) {
		t.Errorf("%d losses, want %d like those of the other storage, with other bits", len(got.losses), len(want.losses))
	}
}

// TestHalvesSaveMemory wants less for a stage with several micro-batches in flight.
func TestHalvesSaveMemory(t *testing.T) {
	run := testRun()
	run.Model.Context *= 8 // activations are what there is most of
	plan := cut(run, "1f1b", []int{0, 2, 3, 4})
	floats := stageBytes(t, run, plan)
	run.Train.Storage = model.StorageBF16
	if halves := stageBytes(t, run, plan); halves >= floats {
		t.Errorf("a stage takes %d bytes with BF16 storage, %d with float32", halves, floats)
	}
}
