package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// jumpy is a text with steps whose gradients are larger than those around them.
type jumpy struct {
	patterned
	steps []plan.Step
}

func (j jumpy) Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	tokens, targets, err = j.patterned.Micro(ctx, step, micro, batch)
	if slices.Contains(j.steps, step) {
		for i := range targets {
			tokens[i], targets[i] = 5, 9
		}
	}
	return tokens, targets, err
}

// calmRun is a run whose gradients are clipped in the steps of jumpyText alone.
func calmRun() (plan.RunSpec, jumpy) {
	run := testRun()
	run.Model.Blocks = 6
	run.Train.Steps, run.Train.Micros, run.Train.MicroBatch = 14, 6, 1
	run.Train.HeldOutEvery, run.Train.CheckpointEvery, run.Train.LR, run.Train.ClipNorm = 6, 1, 1e-3, 3.5
	return run, jumpy{patterned{run.Model.Context}, []plan.Step{3, 9}}
}

// applied counts what workers did before commits.
type applied struct{ optimistic, rolledBack int }

// trainOptimistic carries a plan out with text that may jump, and counts what was applied before its commit.
func trainOptimistic(t *testing.T, c Config, as func(kernels.Device) kernels.Device) (result, applied) {
	t.Helper()
	out, count := newResult(), applied{}
	var mu sync.Mutex // guards out
	c.OnStep = func(r StepResult) {
		mu.Lock()
		defer mu.Unlock()
		out.evaluated(t, r)
		if !r.Final {
			agree(t, out.losses, r.Step, false, r.Loss)
		}
	}
	workers := trainOver(t, c, as, func(e expecting) collective.Exchange { return distantCommits{e} })
	for _, w := range workers {
		count.optimistic, count.rolledBack = count.optimistic+w.validator.applied, count.rolledBack+w.validator.rolledBack
	}
	return out, count
}

// distantCommits is an exchange on whose lines commits take a while, so that workers have begun with the next step.
type distantCommits struct{ expecting }

func (e distantCommits) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	payload, err := e.expecting.Receive(ctx, from, tag)
	if err == nil && tag.Kind == wire.KindCommit {
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return payload, err
}

// validated is a plan whose workers do not wait for commits.
func validated(p plan.Plan) plan.Plan {
	p.PostValidation = true
	return p
}

func sameStates(t *testing.T, name string, got, want *memoryKeeper) {
	t.Helper()
	for step, layers := range want.layers {
		for l, state := range layers {
			if !bytes.Equal(got.layers[step][l], state) {
				t.Errorf("%s: layer %d of step %d differs", name, l, step)
			}
		}
	}
}

// TestUpdatesBeforeTheirCommitKeepTheBits: losses and states of all steps are those of workers that wait, whatever is rolled back.
func TestUpdatesBeforeTheirCommitKeepTheBits(t *testing.T) {
	t.Parallel()
	run, text := calmRun()
	long := run
	long.Model.Context, long.Train.ClipNorm = 64, 3
	halves := stores(run, model.StorageBF16)
	for _, c := range []struct {
		name string
		run  plan.RunSpec
		plan plan.Plan
	}{
		{"1f1b on 2", run, scheduled(t, run, "1f1b", 2)},
		{"zb-h2 on 4", run, scheduled(t, run, "zb-h2", 4)},
		{"zb-v on 4", run, scheduled(t, run, "zb-v", 4)},
		{"segments", long, scheduled(t, long, "seq1f1b", 2)},
		{"halves", halves, scheduled(t, halves, "zb-h2", 2)},
		{"halves by chance", byChance(run), scheduled(t, byChance(run), "zb-h1", 2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			plain, keeper := &memoryKeeper{}, &memoryKeeper{}
			none := func(d kernels.Device) kernels.Device { return d }
			want, _ := trainOptimistic(t, Config{Run: c.run, Plan: c.plan, Keeper: from{plain, 0}, Data: jumpy{patterned{c.run.Model.Context}, text.steps}}, none)
			got, count := trainOptimistic(t, Config{Run: c.run, Plan: validated(c.plan), Keeper: from{keeper, 0}, Data: jumpy{patterned{c.run.Model.Context}, text.steps}}, none)
			t.Log(c.name, count)
			equal(t, c.name, got, want)
			sameStates(t, c.name, keeper, plain)
			if workers := len(c.plan.Workers()); count.optimistic < 2*workers || count.rolledBack == 0 {
				t.Errorf("%d updates were made before their commit, %d rolled back", count.optimistic, count.rolledBack)
			}
		})
	}
}

// TestAChangeOfScheduleInAnOptimisticStepKeepsTheBits: forwards that were made under the schedule of before are made again.
func TestAChangeOfScheduleInAnOptimisticStepKeepsTheBits(t *testing.T) {
	t.Parallel()
	run, _ := calmRun()
	run.Train.ClipNorm = 0
	p := scheduled(t, run, "1f1b", 2)
	texts := []string{"zb-h1", "zb-h1", "zb-h2", "gpipe 3,0", "1f1b 3,0", "1f1b 3,0"}
	plain, keeper := &memoryKeeper{}, &memoryKeeper{}
	want := trainAlong(t, run, p, from{plain, 0}, &choices{texts: texts})
	equal(t, "schedules", trainAlong(t, run, validated(p), from{keeper, 0}, &choices{texts: texts}), want)
	sameStates(t, "schedules", keeper, plain)
}

// TestASkippedOptimisticUpdateIsRolledBack: gradients out of the range of f16 are met after the update.
func TestASkippedOptimisticUpdateIsRolledBack(t *testing.T) {
	t.Parallel()
	run, text := calmRun()
	run = stores(run, model.StorageF16)
	run.Train.ClipNorm = 0
	p := scheduled(t, run, "zb-h2", 2)
	once := func() func(kernels.Device) kernels.Device {
		n := 0
		return func(d kernels.Device) kernels.Device {
			if n++; n > 1 { // the first stage's gradients alone: the last one cannot know
				return d
			}
			return spoiled{d, 100}
		}
	}
	plain, keeper := &memoryKeeper{}, &memoryKeeper{}
	want, _ := trainOptimistic(t, Config{Run: run, Plan: p, Keeper: from{plain, 0}, Data: text}, once())
	got, count := trainOptimistic(t, Config{Run: run, Plan: validated(p), Keeper: from{keeper, 0}, Data: text}, once())
	equal(t, "skips", got, want)
	sameStates(t, "skips", keeper, plain)
	if count.rolledBack == 0 {
		t.Errorf("%d updates were made before their commit, %d rolled back", count.optimistic, count.rolledBack)
	}
}

// spoiled is a device with gradients out of range in one of its calls.
type spoiled struct {
	kernels.Device
	call int
}

func (d spoiled) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &spoiledQueue{q, d.call}, err
}

type spoiledQueue struct {
	kernels.Queue
	left int
}

func (q *spoiledQueue) Do(c kernels.Call) {
	q.Queue.Do(c)
	if c.Op != kernels.OpGELUBackward {
		return
	}
	if q.left--; q.left == 0 {
		q.Queue.Do(kernels.Fill(c.Args[0], c.Dims[0], float32(math.Inf(1))))
	}
}

// TestDeathInAnOptimisticStepLeavesTheCommittedState: whenever a worker dies, what the living have is the state of the newest commit, as far as they
// can get it, and nothing of the step that they had begun.
func TestDeathInAnOptimisticStepLeavesTheCommittedState(t *testing.T) {
	run, text := calmRun()
	run.Train.Steps = 7
	p := validated(scheduled(t, run, "zb-h2", 3))
	plain := &memoryKeeper{}
	trainOptimistic(t, Config{Run: run, Plan: scheduled(t, run, "zb-h2", 3), Keeper: from{plain, 0}, Data: text}, func(d kernels.Device) kernels.Device { return d })
	stride := 1
	if testing.Short() {
		stride = 7
	}
	for _, victim := range p.Peers() {
		for _, step := range []plan.Step{3, 4, 6} { // one that is rolled back, the one after it, and one that is kept
			d := death{run: run, plan: p, victim: victim, step: step, data: text, died: true}
			for ; d.died; d.calls += stride {
				d.keeper = &memoryKeeper{}
				newest := d.salvageLiving(t, d.carryOut(t))
				for l, state := range d.keeper.layers[newest] {
					if newest > 0 && !bytes.Equal(state, plain.layers[newest][l]) {
						t.Errorf("layer %d of step %d differs", l, newest)
					}
				}
				if t.Failed() {
					t.Fatalf("%s died after %d calls of step %d", victim, d.calls, step)
				}
			}
		}
	}
}

func (d *death) salvageLiving(t *testing.T, living []survivor) plan.Step {
	newest, layers := d.salvage(t, living)
	if d.died && len(layers) >= d.run.Model.Layers() || len(layers) == 0 {
		t.Errorf("%d layers are left", len(layers))
	}
	return newest
}

// TestASubstituteCatchesUpWithOptimisticSteps: whoever is lost, before or after updates that are rolled back, another one goes on in its place from
// a checkpoint, while the others have begun with the next step.
func TestASubstituteCatchesUpWithOptimisticSteps(t *testing.T) {
	t.Parallel()
	run, text := calmRun()
	run.Train.Steps, run.Train.CheckpointEvery, run.Train.HeldOutEvery, run.Train.Micros = 7, 2, 0, 4
	text.steps = []plan.Step{4}
	p := scheduled(t, run, "zb-h1", 3)
	saved := &memoryKeeper{}
	want, _ := trainOptimistic(t, Config{Run: run, Plan: p, Keeper: from{saved, 0}, Data: text}, func(d kernels.Device) kernels.Device { return d })
	p = validated(p)
	every := 4
	if testing.Short() {
		every = 19
	}
	for _, lost := range p.Peers() {
		again := false // it went on after a commit whose step was undone
		for after, lived := 0, false; !lived; after += every {
			got := loss{run: run, plan: p, lost: lost, after: after, decide: func(c *Config, substitute bool) {
				c.Data = text
				again = again || substitute && c.SecondTry
			}}.train(t)
			equal(t, fmt.Sprintf("%s after %d", lost, after), got.result, want)
			equalStates(t, fmt.Sprintf("%s after %d", lost, after), got.states, saved)
			lived = got.lived
			if t.Failed() {
				t.FailNow()
			}
		}
		if !again && !testing.Short() {
			t.Errorf("no substitute of %s began after a step that was rolled back", lost)
		}
	}
}
