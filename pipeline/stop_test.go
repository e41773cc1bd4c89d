package pipeline

import (
	"context"
	"errors"
	"testing"

	"pnode/kernels/cpu"
)

func TestStopEndsAllWorkersWithASave(t *testing.T) {
	run := testRun()
	run.Train.CheckpointEvery = 0
	plan := cut(run, "1f1b", []int{0, 2})
	keeper := &memoryKeeper{}
	net := newMemoryNet()
	var workers []*Worker
	for _, place := range plan.Replicas[0].Stages {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		asked := 0
		w, err := New(usual(Config{
			Worker: place.Worker(), Run: run, Plan: plan, Device: device,
			Exchange: memoryExchange{net, place.Peer}, Keeper: from{keeper, 0},
			Stop: func() bool { asked++; return asked == 2 },
		}))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		workers = append(workers, w)
	}
	runAll(t, workers)
	if len(keeper.layers) != 1 || len(keeper.layers[2]) != run.Model.Layers() {
		t.Fatalf("saved steps %v, want all %d layers of step 2 only", keeper.layers, run.Model.Layers())
	}
}

func TestACancelledRunReturns(t *testing.T) {
	run := testRun()
	plan := cut(run, "1f1b", []int{0, 2}) // the other stage never comes
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	w, err := New(usual(Config{
		Worker: plan.Workers()[1], Run: run, Plan: plan, Device: device,
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx, ctx); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want the context's error", err)
	}
}

func TestALoneStageHeedsItsContext(t *testing.T) {
	run := testRun()
	run.Train.Steps = 1000
	plan := cut(run, "1f1b", []int{0})
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	ctx, cancel := context.WithCancel(t.Context())
	steps := 0
	w, err := New(usual(Config{
		Worker: plan.Workers()[0], Run: run, Plan: plan, Device: device,
		OnStep: func(StepResult) { steps++; cancel() },
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Run(ctx, ctx); !errors.Is(err, context.Canceled) || steps != 1 {
		t.Fatalf("after %d steps: %v, want 1 and the context's error", steps, err)
	}
}
