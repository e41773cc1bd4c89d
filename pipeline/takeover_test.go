package pipeline

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/pipeline/collective"
	"pnode/planner/plan"
)

// loads is a keeper that notes which layers are asked for.
type loads struct {
	from
	mu     sync.Mutex // guards layers
	layers []int
}

func (k *loads) Load(ctx context.Context, layer int, of Part, dst io.Writer) error {
	k.mu.Lock()
	k.layers = append(k.layers, layer)
	k.mu.Unlock()
	return k.from.Load(ctx, layer, of, dst)
}

// TestStateStaysInMemory: the plan after a death takes the state of layers that stay where they are from memory, loads the
// others alone, and makes the same steps. So it does with optimizer state in host memory.
func TestStateStaysInMemory(t *testing.T) {
	for name, offload := range map[string]bool{"on the device": false, "in host memory": true} {
		t.Run(name, func(t *testing.T) {
			run := shortRun()
			before, next := cut(run, "1f1b", []int{0, 2}, []int{0, 2}), cut(run, "1f1b", []int{0, 1})
			for _, p := range []plan.Plan{before, next} {
				for r := range p.Replicas {
					for s := range p.Replicas[r].Stages {
						p.Replicas[r].Stages[s].Offload = offload
					}
				}
			}
			want := train(t, run, before, &memoryKeeper{})
			d := death{run: run, plan: before, victim: "peer-1-1", step: 2, calls: 2, keeper: &memoryKeeper{}}
			living := d.carryOut(t)
			defer func() {
				for _, s := range living {
					s.Close()
				}
			}()
			next.Generation, next.Start = 2, d.newest
			if d.newest == 0 {
				t.Fatal("it died before the first step")
			}
			d.keeper.layers = nil
			for _, s := range living {
				for _, at := range s.Reach() {
					if at.Step != d.newest || at.Replica != 0 {
						continue
					}
					if err := s.Save(t.Context(), d.keeper.Save, at.StageID, before.At(at.StageID).Layers); err != nil {
						t.Fatal(err)
					}
				}
			}
			keeper := &loads{from: from{d.keeper, next.Start}}
			net, got := collective.NewMemory(), newResult()
			var mu sync.Mutex // guards got
			group, ctx := errgroup.WithContext(t.Context())
			for _, id := range next.Workers() {
				i := slices.IndexFunc(living, func(s survivor) bool { return s.Worker() == id })
				s := living[i]
				living = slices.Delete(living, i, i+1)
				s.Keep(next)
				w, err := New(usual(Config{
					Worker: id, Run: run, Plan: next, Device: s.worker.cfg.Device, Host: s.worker.cfg.Host, Keeper: keeper,
					Exchange: net.End(id.Peer), From: s.Retained,
					OnStep: func(r StepResult) {
						mu.Lock()
						defer mu.Unlock()
						if !r.Final {
							agree(t, got.losses, r.Step, false, r.Loss)
						}
					},
				}))
				if err != nil {
					t.Fatal(err)
				}
				defer w.Close()
				group.Go(func() error { return errors.Join(w.Run(ctx, ctx), w.Saved()) })
			}
			if err := group.Wait(); err != nil {
				t.Fatal(err)
			}
			if slices.Sort(keeper.layers); !slices.Equal(keeper.layers, []int{1}) {
				t.Errorf("the layers %v were loaded, want the one that moved: 1", keeper.layers)
			}
			for step := next.Start + 1; step <= run.Train.Steps; step++ {
				if got.losses[step] != want.losses[step] {
					t.Errorf("step %d has another loss than without the death", step)
				}
			}
		})
	}
}

// TestOtherStepsAreNotTakenOver: state of another step than the plan's start is loaded.
func TestOtherStepsAreNotTakenOver(t *testing.T) {
	run := shortRun()
	p := cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	d := death{run: run, plan: p, victim: "peer-1-1", step: 2, calls: 2, keeper: &memoryKeeper{}}
	for _, s := range d.carryOut(t) {
		next := p
		next.Start = d.newest + 1
		for at, layers := range s.Keep(next) {
			if len(layers) > 0 {
				t.Errorf("replica %d stage %d keeps the layers %v of step %d for a plan from step %d", at.Replica, at.Stage, layers, d.newest, next.Start)
			}
		}
		s.Close()
	}
}
