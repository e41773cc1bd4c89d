package pipeline

import (
	"math"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestHalvesGiveTheSameLossesOnAnyCut trains with storage in halves, on replicas too, and goes on
// from a checkpoint on another cut.
func TestHalvesGiveTheSameLossesOnAnyCut(t *testing.T) {
	t.Parallel()
	runs := map[string]plan.RunSpec{}
	for name, run := range families() {
		runs[name] = stores(run, model.StorageBF16)
	}
	runs["gpt2"], runs["gpt2, rounded by chance"] = stores(testRun(), model.StorageBF16), byChance(testRun())
	runs["gpt2 in f16"] = stores(testRun(), model.StorageF16)
	for name, run := range runs {
		keeper := &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", []int{0}), keeper)
		equal(t, name+" in three stages", train(t, run, cut(run, "gpipe", []int{0, 1, 3}), &memoryKeeper{}), want)
		equal(t, name+" resumed", resume(t, run, keeper), want.after(run.Train.CheckpointEvery))
	}
	for _, half := range []model.Storage{model.StorageBF16, model.StorageF16} {
		run := stores(testRun(), half)
		want := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), &memoryKeeper{})
		equal(t, "replicas of unlike cuts", train(t, run, cut(run, "1f1b", []int{0, 2}, []int{0, 1, 4}), &memoryKeeper{}), want)
		alone := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
		equal(t, "a split backward", train(t, run, scheduled(t, run, "zb-h1", 2), &memoryKeeper{}), alone)
	}
}

// stores is a run all of whose stages have a storage.
func stores(run plan.RunSpec, s model.Storage) plan.RunSpec {
	run.Train.Storage = plan.Storage(s)
	return run
}

// byChance rounds weights by chance.
func byChance(run plan.RunSpec) plan.RunSpec {
	run.Train.Storage, run.Train.StochasticRounding = plan.Storage(model.StorageBF16), true
	return run
}

// TestRoundingByChanceStaysBesideNearest: other bits, but no other training.
func TestRoundingByChanceStaysBesideNearest(t *testing.T) {
	run := testRun()
	run.Train.Storage = plan.Storage(model.StorageBF16)
	want := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
	beside(t, train(t, byChance(run), cut(run, "1f1b", []int{0}), &memoryKeeper{}), want)
}

// TestSkippedUpdatesRoundByChanceToo: a checkpoint does not say which steps changed nothing.
func TestSkippedUpdatesRoundByChanceToo(t *testing.T) {
	run := byChance(testRun())
	run.Train.Storage = plan.StorageAuto
	plan := inTurns(cut(run, "1f1b", []int{0, 2}), model.StorageBF16, model.StorageF16)
	skips := func(d kernels.Device) kernels.Device { return overflowing{d} }
	keeper := &memoryKeeper{}
	want := trainAs(t, run, plan, keeper, skips).after(run.Train.CheckpointEvery)
	plan.Start, plan.Generation = run.Train.CheckpointEvery, 2
	equal(t, "resumed", trainAs(t, run, plan, keeper, skips), want)
}

// TestEitherStorageResumesTheOther goes on with float32 from a checkpoint of BF16 storage,
// and the other way round: the losses stay beside those of the run that wrote it.
func TestEitherStorageResumesTheOther(t *testing.T) {
	for _, pair := range [][2]model.Storage{
		{model.StorageBF16, model.StorageF32}, {model.StorageF32, model.StorageBF16}, {model.StorageF16, model.StorageF32}, {model.StorageBF16, model.StorageF16},
	} {
		run := testRun()
		run.Train.Storage = plan.Storage(pair[0])
		keeper := &memoryKeeper{}
		want := train(t, run, cut(run, "1f1b", []int{0}), keeper).after(run.Train.CheckpointEvery)
		run.Train.Storage = plan.Storage(pair[1])
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

// mixed is a plan in which every second device stores BF16, beginning with the given one.
func mixed(plan plan.Plan, first int) plan.Plan {
	storages := []model.Storage{model.StorageBF16, model.StorageF32}
	return inTurns(plan, storages[first], storages[1-first])
}

// inTurns is a plan whose devices have storages in turns.
func inTurns(plan plan.Plan, storages ...model.Storage) plan.Plan {
	for i, seat := range plan.Workers() {
		for _, at := range plan.StagesOf(seat) {
			plan.Replicas[at.Replica].Stages[at.Stage].Storage = storages[i%len(storages)]
		}
	}
	return plan
}

// TestF16BesideOthers: stages and replicas in F16, whose gradients are scaled, and others, whose are
// not, train as in float32: norms and clipping are of true gradients.
func TestF16BesideOthers(t *testing.T) {
	run := testRun()
	one := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
	two := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), &memoryKeeper{})
	run.Train.Storage = plan.StorageAuto
	for _, storages := range [][]model.Storage{
		{model.StorageF16, model.StorageBF16, model.StorageF32}, {model.StorageF32, model.StorageF16}, {model.StorageF16, model.StorageF16, model.StorageBF16},
	} {
		plan := func() plan.Plan { return inTurns(cut(run, "1f1b", []int{0, 2, 3}), storages...) }
		want := train(t, run, plan(), &memoryKeeper{})
		beside(t, want, one)
		equal(t, "again", train(t, run, plan(), &memoryKeeper{}), want)
		beside(t, train(t, run, inTurns(cut(run, "1f1b", []int{0, 2}, []int{0}), storages...), &memoryKeeper{}), two)
	}
}

// TestUnlikeDevicesTrainTogether: a pipeline of stages in float32 and in BF16, in either order,
// gives losses beside those of float32, the same ones again, and under another schedule; and what
// it saves goes on on a single device of either kind.
func TestUnlikeDevicesTrainTogether(t *testing.T) {
	run := testRun()
	floats := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
	run.Train.Storage = plan.StorageAuto
	for first := range 2 {
		keeper := &memoryKeeper{}
		want := train(t, run, mixed(cut(run, "1f1b", []int{0, 2}), first), keeper)
		beside(t, want, floats)
		equal(t, "again", train(t, run, mixed(cut(run, "1f1b", []int{0, 2}), first), &memoryKeeper{}), want)
		equal(t, "under gpipe", train(t, run, mixed(cut(run, "gpipe", []int{0, 2}), first), &memoryKeeper{}), want)
		for alone := range 2 {
			plan := mixed(cut(run, "1f1b", []int{0}), alone)
			plan.Generation, plan.Start = 2, run.Train.CheckpointEvery
			beside(t, train(t, run, plan, keeper), want.after(run.Train.CheckpointEvery))
		}
	}
}

// TestUnlikeReplicas adds up gradients of stages in float32 and in BF16.
func TestUnlikeReplicas(t *testing.T) {
	run := testRun()
	floats := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), &memoryKeeper{})
	run.Train.Storage = plan.StorageAuto
	plan := func() plan.Plan { return mixed(cut(run, "1f1b", []int{0, 2}, []int{0}), 1) }
	want := train(t, run, plan(), &memoryKeeper{})
	beside(t, want, floats)
	equal(t, "again", train(t, run, plan(), &memoryKeeper{}), want)
}

// TestHalvesSaveMemory wants less for a stage with several micro-batches in flight.
func TestHalvesSaveMemory(t *testing.T) {
	run := testRun()
	run.Model.Context *= 8 // activations are what there is most of
	p := cut(run, "1f1b", []int{0, 2, 3, 4})
	floats := stageBytes(t, run, p)
	run.Train.Storage = plan.Storage(model.StorageBF16)
	if halves := stageBytes(t, run, p); halves >= floats {
		t.Errorf("a stage takes %d bytes with BF16 storage, %d with float32", halves, floats)
	}
}
