package pipeline

import (
	"math"
	"sync/atomic"
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/opencl"
	"pnode/kernels/quant"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestOffloadChangesNoBitOnOpenCL: a driver's device, whose copies are its own, gives the losses
// and states that it gives with all of the optimizer's state on it.
func TestOffloadChangesNoBitOnOpenCL(t *testing.T) {
	device, err := conform.First(t, opencl.List, opencl.ErrNoLibrary).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	run := testRun()
	for _, storage := range []model.Storage{model.StorageF32, model.StorageBF16, model.StorageF16} {
		run.Train.Storage = plan.Storage(storage)
		as := func(kernels.Device) kernels.Device { return device }
		plan, whole, keeper := cut(run, "1f1b", []int{0, 2}), &memoryKeeper{}, &memoryKeeper{}
		want := trainAs(t, run, plan, whole, as)
		equal(t, storage.String(), trainAs(t, run, offloaded(plan), keeper, as), want)
		equalStates(t, storage.String(), keeper, whole)
		if off := memoryOf(t, run, offloaded(plan), plan.StagesOf(plan.Workers()[0])[0]); off.Host == 0 {
			t.Error("nothing was in host memory")
		}
	}
}

// TestWhatHalvesCostOnOpenCL: a driver's device finds in float32 beside BF16 what it finds in float32
// alone, and so does one beside a processor in float32.
func TestWhatHalvesCostOnOpenCL(t *testing.T) {
	device, err := conform.First(t, opencl.List, opencl.ErrNoLibrary).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	for _, text := range []string{"1f1b", "zb-h1"} {
		run := halved(testRun())
		plan, keeper := scheduled(t, run, text, 2), &memoryKeeper{}
		as := func(kernels.Device) kernels.Device { return device }
		got := trainAs(t, run, plan, keeper, as)
		equalFloats(t, text, got.floats, measuredInFloats(t, run, keeper, as))
	}
	run := halved(testRun())
	run.Train.Storage = plan.StorageAuto
	n, halves := 0, 1
	got := trainAs(t, run, mixed(cut(run, "1f1b", []int{0, 2}), halves), &memoryKeeper{}, func(processor kernels.Device) kernels.Device {
		if n++; n-1 == halves {
			return device
		}
		return processor
	})
	if len(got.floats) != int(run.Train.Steps)+1 {
		t.Errorf("%d held-out losses in float32", len(got.floats))
	}
	for step, bits := range got.floats {
		f32, loss := math.Float64frombits(bits), math.Float64frombits(got.heldOut[step])
		if loss == f32 || math.Abs(f32-loss) > 5e-3*f32 {
			t.Errorf("held-out loss of step %d is %v, in float32 throughout %v", step, loss, f32)
		}
	}
}

// TestF16TrainsLikeFloatsOnOpenCL: 60 steps in F16 on a driver's device, in one stage and in two with
// a processor in float32, have losses within 1% of those in float32 on the processor, and learn.
func TestF16TrainsLikeFloatsOnOpenCL(t *testing.T) {
	device, err := conform.First(t, opencl.List, opencl.ErrNoLibrary).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery, run.Train.HeldOutEvery = 60, 60, 60
	want := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
	run.Train.Storage = plan.StorageAuto
	for _, plan := range []plan.Plan{
		inTurns(cut(run, "1f1b", []int{0}), model.StorageF16), inTurns(cut(run, "1f1b", []int{0, 2}), model.StorageF16, model.StorageF32),
	} {
		n := 0
		got := trainAs(t, run, plan, &memoryKeeper{}, func(processor kernels.Device) kernels.Device {
			if n++; n == 1 {
				return device
			}
			return processor
		})
		worst := 0.0
		for step, bits := range want.losses {
			w, g := math.Float64frombits(bits), math.Float64frombits(got.losses[step])
			worst = max(worst, math.Abs(g-w)/w)
		}
		first, last := math.Float64frombits(want.losses[1]), math.Float64frombits(got.losses[run.Train.Steps])
		if !(worst <= 0.01) || !(last < 0.9*first) {
			t.Errorf("%d stages: losses are off by %.2g of them, and go from %v to %v", len(plan.Replicas[0].Stages), worst, first, last)
		}
		t.Logf("%d stages: losses are off by %.2g of them, and go from %v to %v", len(plan.Replicas[0].Stages), worst, first, last)
	}
}

// TestPackedMessagesChangeNoBitOnOpenCL: what a driver's device packs is what the host packs.
func TestPackedMessagesChangeNoBitOnOpenCL(t *testing.T) {
	device, err := conform.First(t, opencl.List, opencl.ErrNoLibrary).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	run := testRun()
	run.Model.Channels = quant.Group // devices pack whole groups of a token
	plan := withCodec(cut(run, "1f1b", []int{0, 2}), "int8")
	var calls atomic.Int64
	near := lateBy(0, 0, 0)
	want := trainAs(t, run, plan, &memoryKeeper{}, func(kernels.Device) kernels.Device { return near.of(device) })
	packs := trainAs(t, run, plan, &memoryKeeper{}, func(kernels.Device) kernels.Device {
		return distantBy(0, 0, 0).of(tally{device, kernels.OpQuantize, &calls})
	})
	equal(t, "packed by the device", packs, want)
	if calls.Load() == 0 {
		t.Error("the device packs nothing")
	}
}

// TestMuonOnOpenCL: a driver's device makes the updates that the processor makes, but for rounding; in halves, too.
func TestMuonOnOpenCL(t *testing.T) {
	device, err := conform.First(t, opencl.List, opencl.ErrNoLibrary).Open()
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	runs := map[string]plan.RunSpec{
		"float32": testRun(), "bf16, rounded by chance": byChance(testRun()), "f16": stores(testRun(), model.StorageF16),
	}
	for name, run := range runs {
		run = byMuon(run)
		p := cut(run, "1f1b", []int{0, 2})
		want := train(t, run, p, &memoryKeeper{})
		got := trainAs(t, run, p, &memoryKeeper{}, func(kernels.Device) kernels.Device { return device })
		worst := 0.0
		for step, bits := range want.losses {
			w, g := math.Float64frombits(bits), math.Float64frombits(got.losses[step])
			if worst = max(worst, math.Abs(g-w)/w); !(math.Abs(g-w) <= 1e-3*w) {
				t.Errorf("%s: step %d has loss %v, %v on the processor", name, step, g, w)
			}
		}
		t.Logf("%s: losses are off by %.2g of them", name, worst)
	}
}
