package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"pnode/pipeline/collective"
	"pnode/planner/plan"

	"golang.org/x/sync/errgroup"

	"pnode/kernels/cpu"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
)

// sharded is a plan whose replicas hold the optimizer state in parts, of some layers or of all.
func sharded(p plan.Plan, layers ...plan.LayerRange) plan.Plan {
	if p.Sharded = layers; layers == nil {
		last := p.Replicas[0].Stages[len(p.Replicas[0].Stages)-1]
		p.Sharded = []plan.LayerRange{{First: 0, End: last.Layers.End}}
	}
	return p
}

// shareRuns are of every family, tied, frozen in part and stored in BF16.
func shareRuns() map[string]plan.RunSpec {
	runs := families()
	runs["gpt2"] = testRun()
	half := testRun()
	half.Train.Storage = plan.Storage(model.StorageBF16)
	runs["gpt2 in bf16"], runs["gpt2 in bf16, rounded by chance"] = half, byChance(half)
	return runs
}

// TestSharesGiveTheSameBits compares losses, held-out losses and states with those of
// replicas that each hold all, for replicas that are cut alike or not.
func TestSharesGiveTheSameBits(t *testing.T) {
	t.Parallel()
	cuts := [][][]int{
		{{0}, {0}},
		{{0, 3}, {0, 2}},
		{{0, 2}, {0, 1, 4}, {0}},
		{{0, 1, 3}, {0}, {0, 4}, {0, 2}},
	}
	runs := shareRuns()
	for i, name := range slices.Sorted(maps.Keys(runs)) {
		run := runs[name]
		run.Train.Micros = 12
		for k, starts := range cuts {
			if !meets(i, k, len(cuts)) {
				continue
			}
			whole, parts := &memoryKeeper{}, &memoryKeeper{}
			want := train(t, run, cut(run, "1f1b", starts...), whole)
			about := fmt.Sprintf("%s, %v", name, starts)
			equal(t, about, train(t, run, sharded(cut(run, "1f1b", starts...)), parts), want)
			equalStates(t, about, parts, whole)
		}
	}
}

// TestSharesOfSomeLayersGiveTheSameBits: whichever layers are in parts, within a stage, across
// stages or the ends of a tied embedding alone, and however replicas are cut.
func TestSharesOfSomeLayersGiveTheSameBits(t *testing.T) {
	t.Parallel()
	for name, run := range shareRuns() {
		p := cut(run, "1f1b", []int{0, 2}, []int{0, 1, 3})
		last := run.Model.Layers() - 1
		whole := &memoryKeeper{}
		want := train(t, run, p, whole)
		for _, layers := range [][]plan.LayerRange{
			{{First: 1, End: 2}},
			{{First: 1, End: last}},
			{{First: 0, End: 1}, {First: last, End: last + 1}},
		} {
			parts := &memoryKeeper{}
			about := fmt.Sprintf("%s, %v", name, layers)
			equal(t, about, train(t, run, sharded(p, layers...), parts), want)
			equalStates(t, about, parts, whole)
		}
	}
}

// TestATiedEmbeddingHasBothEndsAlike: their gradients are added up part by part.
func TestATiedEmbeddingHasBothEndsAlike(t *testing.T) {
	run := testRun()
	for _, starts := range [][]int{{0}, {0, 2}} {
		plan := sharded(cut(run, "1f1b", starts, starts), plan.LayerRange{First: 0, End: 2})
		_, err := New(Config{Run: run, Plan: plan, Worker: plan.Coordinator()})
		if !errors.Is(err, ErrBadConfig) || !strings.Contains(err.Error(), "tied") {
			t.Errorf("%v: %v", starts, err)
		}
	}
}

// TestSharesUnderOtherSchedules has a worker hold several stages, of several replicas.
func TestSharesUnderOtherSchedules(t *testing.T) {
	t.Parallel()
	run := deep()
	for _, text := range []string{"chimera", "zb-h1", "depth-first:v=2"} {
		for lanes := 1; lanes <= 2; lanes++ {
			p := laned(t, run, text, lanes, 2)
			if len(p.Replicas) == 1 {
				continue
			}
			whole, parts := &memoryKeeper{}, &memoryKeeper{}
			want := train(t, run, p, whole)
			equal(t, text, train(t, run, sharded(p), parts), want)
			equalStates(t, text, parts, whole)
			equal(t, text+", in part", train(t, run, sharded(p, plan.LayerRange{First: 1, End: 3}), &memoryKeeper{}), want)
		}
	}
}

// TestCheckpointsOfSharesFitEveryPlan goes on from one plan's checkpoint under another, in
// parts or whole, on other cuts, and at the same number of replicas with the same losses.
func TestCheckpointsOfSharesFitEveryPlan(t *testing.T) {
	t.Parallel()
	for name, run := range shareRuns() {
		first, second := cut(run, "1f1b", []int{0, 2}, []int{0}), cut(run, "1f1b", []int{0}, []int{0, 1, 3})
		keeper := &memoryKeeper{}
		want := train(t, run, first, keeper).after(run.Train.CheckpointEvery)
		second.Start, second.Generation = run.Train.CheckpointEvery, 2
		equal(t, name+", whole to parts", train(t, run, sharded(second), keeper), want)

		keeper = &memoryKeeper{}
		train(t, run, sharded(first), keeper)
		equal(t, name+", parts to whole", train(t, run, second, keeper), want)
		equal(t, name+", parts to parts", train(t, run, sharded(second), keeper), want)
		alone := cut(run, "1f1b", []int{0, 3})
		alone.Start, alone.Generation = second.Start, 2
		train(t, run, alone, keeper)
	}
}

// TestSharesTakeLessMemory: each replica has its part of the moments and all of the rest.
func TestSharesTakeLessMemory(t *testing.T) {
	run := testRun()
	p := cut(run, "1f1b", []int{0, 3}, []int{0, 3}, []int{0, 3}, []int{0, 3})
	for s := range p.Replicas[0].Stages {
		var moments int64
		whole := memoryOf(t, run, p, plan.StageID{Stage: plan.Stage(s)})
		for r := range p.Replicas {
			part := memoryOf(t, run, sharded(p), plan.StageID{Replica: plan.Replica(r), Stage: plan.Stage(s)})
			moments += part.Moments
			if part.Moments = whole.Moments; part != whole {
				t.Errorf("stage %d: %+v, want all but moments of %+v", s, part, whole)
			}
		}
		aligned := int64(64 * momentVectors * len(p.Replicas) * run.Model.Layers())
		if moments < whole.Moments || moments > whole.Moments+aligned {
			t.Errorf("stage %d: parts of %d bytes in all, want %d", s, moments, whole.Moments)
		}
	}
	checkMemory(t, "shares", run, sharded(p))
}

// dying is an exchange that is lost at the part of updated parameters that it is told of, or
// at that part of the optimizer state which goes into a checkpoint.
type dying struct {
	collective.MemoryEnd
	kind wire.Kind
	step plan.Step
	left *atomic.Int32 // frames of the kind in the step before it is lost
}

var errDead = errors.New("the replica is dead")

func (d dying) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if f.Tag.Kind == d.kind && f.Tag.Step == d.step && d.left.Add(-1) < 0 {
		return errDead
	}
	return d.MemoryEnd.Send(ctx, to, f)
}

// TestAReplicaDiesWithParametersHalfGathered: nobody goes on, and another generation from the
// last checkpoint has the losses that the run has without it.
func TestAReplicaDiesWithParametersHalfGathered(t *testing.T) {
	run := testRun()
	plan := sharded(cut(run, "1f1b", []int{0, 2}, []int{0, 3}))
	want := train(t, run, plan, &memoryKeeper{}).after(run.Train.CheckpointEvery)
	for _, kind := range []wire.Kind{wire.GatherPart, wire.StatePart} {
		step := run.Train.CheckpointEvery + 2
		if kind == wire.StatePart {
			step = run.Train.Steps // the checkpoint that does not come about
		}
		keeper := &memoryKeeper{}
		if err := trainUntilDeath(t, run, plan, keeper, dying{kind: kind, step: step, left: &atomic.Int32{}}); !errors.Is(err, errDead) {
			t.Fatalf("%v: %v, want the death of the replica", kind, err)
		}
		if n := len(keeper.layers[run.Train.Steps]); n == run.Model.Layers() {
			t.Errorf("%v: a checkpoint of %d layers was made without the dead replica's part", kind, n)
		}
		next := plan
		next.Generation, next.Start = 2, run.Train.CheckpointEvery
		equal(t, kind.String(), train(t, run, next, keeper), want)
	}
}

// trainUntilDeath returns one worker of replica 1 an exchange that dies, and the others the end
// of their context with it.
func trainUntilDeath(t *testing.T, run plan.RunSpec, plan plan.Plan, keeper *memoryKeeper, death dying) error {
	t.Helper()
	net := collective.NewMemory()
	saves, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	group, ctx := errgroup.WithContext(saves)
	for _, seat := range plan.Workers() {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		cfg := usual(Config{
			Worker: seat, Run: run, Plan: plan, Device: device,
			Exchange: net.End(seat.Peer), Keeper: from{keeper, plan.Start},
		})
		if seat == plan.Replicas[1].Stages[0].Worker() {
			death.MemoryEnd = net.End(seat.Peer)
			cfg.Exchange = death
		}
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		group.Go(func() error {
			err := w.Run(ctx, ctx)
			if err != nil {
				cancel(err) // the saves too
			}
			return errors.Join(err, w.Saved())
		})
	}
	return group.Wait()
}
