package pipeline

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/planner/plan"
)

// lateMoments is a keeper that gives moments once they may come, and the text of a run that lets them come with the last micro-batch of a
// step.
type lateMoments struct {
	from
	patterned
	last plan.Micro
	may  chan struct{}
	once *sync.Once
	// fails is what comes in their place; nil: they come.
	fails error
}

func newLateMoments(run plan.RunSpec, k *memoryKeeper, start plan.Step) lateMoments {
	return lateMoments{
		from: from{k, start}, patterned: patterned{run.Model.Context}, last: plan.Micro(run.Train.Micros - 1),
		may: make(chan struct{}), once: &sync.Once{},
	}
}

func (l lateMoments) Load(ctx context.Context, layer int, of Part, dst io.Writer) error {
	if of != Parameters {
		select {
		case <-l.may:
		case <-ctx.Done():
			return ctx.Err()
		}
		if l.fails != nil {
			return l.fails
		}
	}
	return l.from.Load(ctx, layer, of, dst)
}

func (l lateMoments) Micro(ctx context.Context, step plan.Step, micro plan.Micro, batch int) (tokens, targets []int32, err error) {
	if micro == l.last {
		l.once.Do(func() { close(l.may) })
	}
	return l.patterned.Micro(ctx, step, micro, batch)
}

// TestTheFirstStepBeginsWithoutMoments: they come while it goes on, and no worker has its state before. The losses are those of a run that
// goes on without a change of plan.
func TestTheFirstStepBeginsWithoutMoments(t *testing.T) {
	run := testRun()
	first, next := cut(run, "1f1b", []int{0, 3}), cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	keeper := &memoryKeeper{}
	want := train(t, run, first, keeper)
	next.Generation, next.Start = 2, plan.Step(run.Train.CheckpointEvery)
	got := newResult()
	synctest.Test(t, func(t *testing.T) {
		late := newLateMoments(run, keeper, next.Start)
		var mu sync.Mutex // guards got
		var loaded atomic.Int32
		trainBy(t, Config{
			Run: run, Plan: next, Keeper: late, Data: late, Late: true,
			OnLoaded: func() {
				select {
				case <-late.may:
				default:
					t.Error("a worker has all of its state, without moments")
				}
				loaded.Add(1)
			},
			OnStep: func(r StepResult) {
				if n := loaded.Load(); int(n) != len(next.Workers()) {
					t.Errorf("step %d is made, and %d workers have their state", r.Step, n)
				}
				mu.Lock()
				defer mu.Unlock()
				got.evaluated(t, r)
				if !r.Final {
					agree(t, got.losses, r.Step, false, r.Loss)
				}
			},
		}, func(d kernels.Device) kernels.Device { return d })
	})
	for step := range want.losses {
		if step <= next.Start {
			delete(want.losses, step)
			delete(want.heldOut, step)
		}
	}
	equal(t, "with late moments", got, want)
}

// TestNoStepIsMadeWithoutMoments: where one worker cannot get them nobody takes the step, and it offers no state.
func TestNoStepIsMadeWithoutMoments(t *testing.T) {
	run := testRun()
	p := cut(run, "1f1b", []int{0, 3})
	keeper := &memoryKeeper{}
	train(t, run, p, keeper)
	p.Generation, p.Start = 2, plan.Step(run.Train.CheckpointEvery)
	good := newLateMoments(run, keeper, p.Start)
	bad := good
	bad.fails = errors.New("nobody has them")
	net := collective.NewMemory()
	group, ctx := errgroup.WithContext(t.Context())
	for i, id := range p.Workers() {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		c := Config{
			Worker: id, Run: run, Plan: p, Device: device, Exchange: net.End(id.Peer), Keeper: good, Data: good, Late: true,
			OnStep: func(r StepResult) { t.Errorf("step %d is made", r.Step) },
		}
		if i == 1 {
			c.Keeper = bad
		}
		w, err := New(usual(c))
		if err != nil {
			t.Fatal(err)
		}
		group.Go(func() error {
			err := w.Run(ctx, t.Context())
			r, failed := w.Retain()
			if failed != nil {
				return errors.Join(err, failed)
			}
			defer r.Close()
			if reach := r.Reach(); i == 1 && len(reach) > 0 {
				t.Errorf("the worker without moments offers %+v", reach)
			}
			return err
		})
	}
	if err := group.Wait(); !errors.Is(err, bad.fails) {
		t.Errorf("the workers end with %v", err)
	}
}
