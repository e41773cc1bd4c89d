package pipeline

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/host"
	"pnode/pipeline/model"
)

// offloaded is a plan whose stages keep their optimizer state in host memory: those that are
// named, or all.
func offloaded(p plan.Plan, stages ...int) plan.Plan {
	p.Replicas = slices.Clone(p.Replicas)
	for r := range p.Replicas {
		pipe := &p.Replicas[r]
		pipe.Stages = slices.Clone(pipe.Stages)
		for s := range pipe.Stages {
			pipe.Stages[s].Offload = stages == nil || slices.Contains(stages, s)
		}
	}
	return p
}

// TestOffloadChangesNoBit: losses and states are those of devices that have all, on any cut, by
// some stages or by all, with the state in parts or whole.
func TestOffloadChangesNoBit(t *testing.T) {
	t.Parallel()
	runs := shareRuns()
	byChance := testRun()
	byChance.Train.Storage, byChance.Train.StochasticRounding = plan.Storage(model.StorageBF16), true
	runs["gpt2 in bf16 by chance"] = byChance
	cuts := [][][]int{{{0}}, {{0, 1, 3}}, {{0, 2}, {0, 3}}}
	for i, name := range slices.Sorted(maps.Keys(runs)) {
		run := runs[name]
		for k, starts := range cuts {
			if !meets(i, k, len(cuts)) {
				continue
			}
			p, whole := cut(run, "1f1b", starts...), &memoryKeeper{}
			want := train(t, run, p, whole)
			others := map[string]plan.Plan{"all": offloaded(p), "the first": offloaded(p, 0)}
			if len(starts) > 1 {
				others["parts"] = offloaded(sharded(p))
				others["parts of the second"] = offloaded(sharded(p, plan.LayerRange{First: 1, End: 3}), 1)
			}
			for which, other := range others {
				about, keeper := fmt.Sprintf("%s, %v, %s", name, starts, which), &memoryKeeper{}
				equal(t, about, train(t, run, other, keeper), want)
				equalStates(t, about, keeper, whole)
			}
		}
	}
}

// TestOffloadUnderOtherSchedules has a worker hold several stages.
func TestOffloadUnderOtherSchedules(t *testing.T) {
	run := deep()
	for _, text := range []string{"chimera", "zb-h1", "interleaved:v=2"} {
		plan, whole, keeper := scheduled(t, run, text, 2), &memoryKeeper{}, &memoryKeeper{}
		want := train(t, run, plan, whole)
		equal(t, text, train(t, run, offloaded(plan), keeper), want)
		equalStates(t, text, keeper, whole)
	}
}

// TestCheckpointsOfOffloadFitEveryPlan goes on with the state on devices from a plan that had it
// in host memory, and the other way round.
func TestCheckpointsOfOffloadFitEveryPlan(t *testing.T) {
	t.Parallel()
	for name, run := range shareRuns() {
		first, second := cut(run, "1f1b", []int{0, 2}), cut(run, "1f1b", []int{0, 1, 3})
		second.Start, second.Generation = run.Train.CheckpointEvery, 2
		keeper := &memoryKeeper{}
		want := train(t, run, first, keeper).after(run.Train.CheckpointEvery)
		equal(t, name+", on the device, then in host memory", train(t, run, offloaded(second), keeper), want)
		keeper = &memoryKeeper{}
		train(t, run, offloaded(first, 1), keeper)
		equal(t, name+", in host memory, then on the device", train(t, run, second, keeper), want)
	}
}

// TestOffloadMemoryIsWhatIsPredicted on the device and in the host's memory, and less on the
// device than without.
func TestOffloadMemoryIsWhatIsPredicted(t *testing.T) {
	for name, run := range shareRuns() {
		for _, plan := range []plan.Plan{cut(run, "1f1b", []int{0}), cut(run, "1f1b", []int{0, 1, 3}), sharded(cut(run, "1f1b", []int{0, 2}, []int{0}))} {
			checkMemory(t, name, run, offloaded(plan))
			for _, at := range plan.StagesOf(plan.Workers()[0]) {
				all, off := memoryOf(t, run, plan, at), memoryOf(t, run, offloaded(plan), at)
				if off.Host != all.Moments || off.Moments != 0 || off.Total() != all.Total()-all.Moments+off.Windows || off.Windows > all.Moments/4 {
					t.Errorf("%s: %+v with the state in host memory, %+v without", name, off, all)
				}
			}
		}
	}
}

// TestHostMemoryThatDoesNotSufficeIsRefused before anything is allocated.
func TestHostMemoryThatDoesNotSufficeIsRefused(t *testing.T) {
	run := testRun()
	p := offloaded(cut(run, "1f1b", []int{0}))
	need := memoryOf(t, run, p, plan.StageID{}).Host
	for _, short := range []int64{0, 4} {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		var memory host.Memory
		memory.LimitMemory(need - short)
		w, err := New(Config{Worker: p.Workers()[0], Run: run, Plan: p, Device: device, Host: &memory, Log: slog.New(slog.DiscardHandler)})
		switch {
		case short == 0 && err != nil:
			t.Errorf("exactly enough: %v", err)
		case short == 0:
			w.Close()
		case !errors.Is(err, kernels.ErrOutOfMemory) || !strings.Contains(err.Error(), fmt.Sprintf("needs %d bytes in host memory for optimizer state, %d are available", need, need-short)):
			t.Errorf("%d bytes too little: %v", short, err)
		case device.PeakBytes() != 0 || memory.PeakBytes() != 0:
			t.Errorf("%d and %d bytes were taken before the refusal", device.PeakBytes(), memory.PeakBytes())
		}
		if err := device.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestCopiesOfOffloadHide: an update with copies both ways takes less than those of one way, since
// the first pieces are there before it begins and the last ones go when it has ended, at whatever
// time the copies come about.
func TestCopiesOfOffloadHide(t *testing.T) {
	const call, way = time.Millisecond, 6 * time.Millisecond
	run := testRun()
	p := cut(run, "1f1b", []int{0})
	whole, keeper := &memoryKeeper{}, &memoryKeeper{}
	train(t, run, p, whole)
	synctest.Test(t, func(t *testing.T) {
		var longest time.Duration
		trainBy(t, Config{
			Run: run, Plan: offloaded(p), Keeper: from{keeper, 0}, Data: patterned{run.Model.Context},
			OnStep: func(r StepResult) {
				for _, s := range r.Stages {
					longest = max(longest, s.Update)
				}
			},
		}, lateBy(call, way, way).of)
		memory := memoryOf(t, run, offloaded(p), plan.StageID{})
		if parts := time.Duration(memory.Host * 3 / memory.Windows); longest < way*parts/2 || longest > way*(parts+2) {
			t.Errorf("an update of %d windows of state takes %v, want little more than %v for each", parts, longest, way)
		}
	})
	equalStates(t, "late copies", keeper, whole)
}

// broken is a device on which one of the copies after loading fails.
type broken struct {
	kernels.Device
	left *atomic.Int64 // copies that succeed, once it is positive
}

type brokenQueue struct {
	kernels.Queue
	left *atomic.Int64
	err  error
}

var errBroken = errors.New("the device broke")

func (d broken) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &brokenQueue{Queue: q, left: d.left}, err
}

func (q *brokenQueue) copied() {
	if q.left.Load() > 0 && q.left.Add(-1) == 0 {
		q.err = errBroken
	}
}

func (q *brokenQueue) Write(dst kernels.View, src []byte) { q.Queue.Write(dst, src); q.copied() }
func (q *brokenQueue) Read(dst []byte, src kernels.View)  { q.Queue.Read(dst, src); q.copied() }
func (q *brokenQueue) Sync() error                        { return errors.Join(q.err, q.Queue.Sync()) }

// TestADeviceThatBreaksWhileStateMovesEndsTheRun with the cause, at whichever copy it is.
func TestADeviceThatBreaksWhileStateMovesEndsTheRun(t *testing.T) {
	run := testRun()
	run.Train.HeldOutEvery = 0
	plan := offloaded(cut(run, "1f1b", []int{0}))
	for after := int64(1); after < 120; after += 7 {
		processor, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		var left atomic.Int64
		w, err := New(usual(Config{
			Worker: plan.Workers()[0], Run: run, Plan: plan, Device: broken{processor, &left}, Host: &host.Memory{},
			OnLoaded: func() { left.Store(after) },
		}))
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Run(t.Context(), t.Context()); !errors.Is(err, errBroken) {
			t.Errorf("after %d copies: %v, want the device's error", after, err)
		}
		w.Close()
		processor.Close()
	}
}
