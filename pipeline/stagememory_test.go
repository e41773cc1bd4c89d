package pipeline

import (
	"log/slog"
	"testing"

	"pnode/kernels/host"
	"pnode/kernels/null"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// TestMemoryIsWhatAWorkerAllocates compares the prediction for what a worker holds with what
// it takes from a device, which is one element more, for the gradient's norm.
func TestMemoryIsWhatAWorkerAllocates(t *testing.T) {
	runs := families()
	runs["gpt2"] = testRun()
	for _, level := range lean {
		run := runs["llama"]
		run.Train.Recompute = plan.Recompute(level)
		runs["llama, recompute "+level.String()] = run
	}
	masked := runs["llama"]
	masked.Train.DocumentMask = true
	runs["llama, document mask"] = masked
	for _, name := range []string{"gpt2", "llama"} {
		run := runs[name]
		run.Train.Storage = plan.Storage(model.StorageBF16)
		runs[name+" in bf16"] = run
	}
	for name, run := range runs {
		for _, scheduleName := range []string{"1f1b", "gpipe"} {
			checkMemory(t, name+" in one stage", run, cut(run, scheduleName, []int{0}))
			checkMemory(t, name+" in three", run, cut(run, scheduleName, []int{0, 1, 3}))
			checkMemory(t, name+" in turns", run, spread(cut(run, scheduleName, []int{0, 1, 2, 3}), []int{0, 1, 0, 1}))
			checkMemory(t, name+" both ways", run, spread(cut(run, scheduleName, []int{0, 1}, []int{0, 2}), []int{0, 1}, []int{1, 0}))
		}
	}
}

// TestMemoryUnderEverySchedule also has input and weight gradients apart.
func TestMemoryUnderEverySchedule(t *testing.T) {
	run := deep()
	for _, text := range deepSchedules {
		for _, workers := range []int{2, 4} {
			checkMemory(t, text, run, scheduled(t, run, text, workers))
		}
	}
}

// memoryOf returns what the stack of a stage of a valid plan is to allocate on its device: all that
// grows with the model, the micro-batch and the micro-batches in flight.
func memoryOf(t *testing.T, run plan.RunSpec, plan plan.Plan, at plan.StageID) model.Memory {
	t.Helper()
	list, err := Programs(plan)
	if err != nil {
		t.Fatal(err)
	}
	use := list.Use(list.Holder(at.Replica, at.Stage), at.Replica, at.Stage)
	m, err := run.StageStack(plan, at, use).Memory()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func checkMemory(t *testing.T, name string, run plan.RunSpec, plan plan.Plan) {
	t.Helper()
	for _, seat := range plan.Workers() {
		device, memory := null.New(), &host.Memory{}
		w, err := New(Config{Worker: seat, Run: run, Plan: plan, Device: device, Host: memory, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		want, beside := 4*int64(w.squares.Len()), int64(0)
		for _, at := range plan.StagesOf(seat) {
			m := memoryOf(t, run, plan, at)
			want, beside = want+m.Total(), beside+m.Host
		}
		if device.PeakBytes() != want || memory.PeakBytes() != beside {
			t.Errorf("%s, %s: %d bytes of %s and %d of its host, predicted %d and %d", name, plan.Schedule, device.PeakBytes(), seat.Peer, memory.PeakBytes(), want, beside)
		}
		w.Close()
	}
}
