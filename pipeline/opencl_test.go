package pipeline

import (
	"sync/atomic"
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/opencl"
	"pnode/pipeline/model"
	"pnode/planner"
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
	for _, storage := range []model.Storage{model.StorageF32, model.StorageBF16} {
		run.Train.Storage = planner.Storage(storage)
		as := func(kernels.Device) kernels.Device { return device }
		plan, whole, keeper := cut(run, "1f1b", []int{0, 2}), &memoryKeeper{}, &memoryKeeper{}
		want := trainAs(t, run, plan, whole, as)
		equal(t, storage.String(), trainAs(t, run, offloaded(plan), keeper, as), want)
		equalStates(t, storage.String(), keeper, whole)
		if off := memoryOf(t, run, offloaded(plan), plan.Holdings(plan.Seats()[0])[0]); off.Host == 0 {
			t.Error("nothing was in host memory")
		}
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
