package pipeline

import (
	"context"
	"errors"
	"testing"

	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
)

func TestStopEndsAllWorkersWithASave(t *testing.T) {
	run := testRun()
	run.Train.CheckpointEvery = 0
	plan := cut(run, "1f1b", []int{0, 2})
	keeper := &memoryKeeper{}
	net := collective.NewMemory()
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
			Exchange: net.End(place.Peer), Keeper: from{keeper, 0},
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

// slowKeeper is a Keeper whose saves end with their context.
type slowKeeper struct{ Keeper }

func (k slowKeeper) Save(ctx context.Context, s State) error {
	if err := k.Keeper.Save(ctx, s); err != nil {
		return err
	}
	<-ctx.Done()
	return ctx.Err()
}

// TestAStepIsReportedThoughItsSaveFails: a member may be lost while a step waits for the save before it. The step is
// committed, and whoever goes on does so after it: nobody else would report it.
func TestAStepIsReportedThoughItsSaveFails(t *testing.T) {
	run := testRun()
	run.Train.CheckpointEvery = 1
	plan := cut(run, "1f1b", []int{0})
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	saves, lost := context.WithCancel(t.Context())
	defer lost()
	asked, reported := 0, 0
	w, err := New(usual(Config{
		Worker: plan.Workers()[0], Run: run, Plan: plan, Device: device, Keeper: slowKeeper{from{&memoryKeeper{}, 0}},
		Stop: func() bool {
			if asked++; asked == 2 {
				lost()
			}
			return asked == 2
		},
		OnStep: func(StepResult) { reported++ },
	}))
	if err != nil {
		t.Fatal(err)
	}
	err = w.Run(t.Context(), saves)
	left, failed := w.Retain()
	if failed != nil {
		t.Fatal(failed)
	}
	defer left.Close()
	if !errors.Is(err, context.Canceled) || reported != 2 {
		t.Errorf("%d steps are reported, then %v; want 2 and the save's error", reported, err)
	}
	for _, at := range left.Reach() {
		if at.Step != 2 {
			t.Errorf("stage %d is at step %d, want 2", at.Stage, at.Step)
		}
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
