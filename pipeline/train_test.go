package pipeline

import (
	"cmp"
	"errors"
	"log/slog"
	"math"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/planner/plan"
)

// result holds the losses of a run by step, as bits, its held-out losses, and these in float32
// throughout.
type result struct{ losses, heldOut, floats map[plan.Step]uint64 }

func newResult() result {
	return result{map[plan.Step]uint64{}, map[plan.Step]uint64{}, map[plan.Step]uint64{}}
}

// evaluated notes the held-out losses of a step.
func (r result) evaluated(t *testing.T, s StepResult) {
	if s.HeldOut != nil {
		agree(t, r.heldOut, s.Step, s.Final, *s.HeldOut)
	}
	if s.HeldOutF32 != nil {
		agree(t, r.floats, s.Step, s.Final, *s.HeldOutF32)
	}
}

// train carries a plan out with all its workers in this process and wants every worker to
// report the same.
func train(t *testing.T, run plan.RunSpec, plan plan.Plan, keeper *memoryKeeper) result {
	t.Helper()
	return trainAs(t, run, plan, keeper, func(d kernels.Device) kernels.Device { return d })
}

// trainAs is train with devices that are made of the processor's.
func trainAs(t *testing.T, run plan.RunSpec, plan plan.Plan, keeper *memoryKeeper, as func(kernels.Device) kernels.Device) result {
	t.Helper()
	return trainLogged(t, run, plan, keeper, nil, as)
}

// trainLogged is trainAs with a log, unless it is nil.
func trainLogged(t *testing.T, run plan.RunSpec, plan plan.Plan, keeper *memoryKeeper, log *slog.Logger, as func(kernels.Device) kernels.Device) result {
	t.Helper()
	out := newResult()
	var mu sync.Mutex // guards out
	onStep := func(r StepResult) {
		mu.Lock()
		defer mu.Unlock()
		out.evaluated(t, r)
		if !r.Final {
			agree(t, out.losses, r.Step, false, r.Loss)
		}
	}
	trainBy(t, Config{Run: run, Plan: plan, Keeper: from{keeper, plan.Start}, Data: patterned{run.Model.Context}, OnStep: onStep, Log: log}, as)
	return out
}

func trainWith(t *testing.T, run plan.RunSpec, plan plan.Plan, keeper Keeper, onStep func(StepResult)) {
	t.Helper()
	trainOn(t, run, plan, keeper, patterned{run.Model.Context}, onStep)
}

// trainOn carries a plan out with all its workers in this process.
func trainOn(t *testing.T, run plan.RunSpec, plan plan.Plan, keeper Keeper, data Data, onStep func(StepResult)) {
	t.Helper()
	trainBy(t, Config{Run: run, Plan: plan, Keeper: keeper, Data: data, OnStep: onStep}, func(d kernels.Device) kernels.Device { return d })
}

// trainBy carries out the plan of c with all its workers in this process, each as c says, on
// devices that are made of the processor's.
func trainBy(t *testing.T, c Config, as func(kernels.Device) kernels.Device) {
	t.Helper()
	trainOver(t, c, as, func(e expecting) collective.Exchange { return e })
}

// trainOver is trainBy with exchanges of one's own. It returns the workers, which are closed.
func trainOver(t *testing.T, c Config, as func(kernels.Device) kernels.Device, exchange func(expecting) collective.Exchange) (workers []*Worker) {
	t.Helper()
	c.Host = &host.Memory{}
	net := collective.NewMemory()
	for _, seat := range c.Plan.Workers() {
		processor, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer processor.Close()
		c.Worker, c.Device = seat, as(processor)
		c.Exchange = exchange(expecting{net.End(seat.Peer), t, c.Run, c.Plan})
		w, err := New(usual(c))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		workers = append(workers, w)
	}
	runAll(t, workers)
	return workers
}

// usual is a configuration with what it leaves out as most tests want it: text that repeats, a
// network and a keeper in memory, nobody who stops the run or listens to it.
func usual(c Config) Config {
	if c.Data == nil {
		c.Data = patterned{c.Run.Model.Context}
	}
	if c.Exchange == nil {
		c.Exchange = collective.NewMemory().End(c.Worker.Peer)
	}
	if c.Keeper == nil {
		c.Keeper = from{&memoryKeeper{}, 0}
	}
	if c.Stop == nil {
		c.Stop = func() bool { return false }
	}
	if c.OnLoaded == nil {
		c.OnLoaded = func() {}
	}
	if c.OnStep == nil {
		c.OnStep = func(StepResult) {}
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	return c
}

// runAll runs workers side by side and wants all of them to end well.
func runAll(t *testing.T, workers []*Worker) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	for _, w := range workers {
		group.Go(func() error { return errors.Join(w.Run(ctx, ctx), w.Saved()) })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
}

// agree notes a value and wants later reports of the same step to be the same bits.
func agree(t *testing.T, have map[plan.Step]uint64, step plan.Step, final bool, v float64) {
	if final {
		step += 1 << 32
	}
	bits := math.Float64bits(v)
	if old, ok := have[step]; ok && old != bits {
		t.Errorf("step %d: workers report %v and %v", step, math.Float64frombits(old), v)
	}
	have[step] = bits
}

func equal(t *testing.T, name string, got, want result) {
	t.Helper()
	for step, bits := range want.losses {
		if got.losses[step] != bits {
			t.Errorf("%s: loss of step %d is %v, want %v", name, step, math.Float64frombits(got.losses[step]), math.Float64frombits(bits))
		}
	}
	for step, bits := range want.heldOut {
		if got.heldOut[step] != bits {
			t.Errorf("%s: held-out loss of step %d is %v, want %v", name, step, math.Float64frombits(got.heldOut[step]), math.Float64frombits(bits))
		}
	}
	equalFloats(t, name, got.floats, want.floats)
	if len(got.losses) != len(want.losses) || len(got.heldOut) != len(want.heldOut) {
		t.Errorf("%s: %d losses and %d held-out, want %d and %d", name, len(got.losses), len(got.heldOut), len(want.losses), len(want.heldOut))
	}
}

// equalFloats compares held-out losses in float32 throughout.
func equalFloats(t *testing.T, name string, got, want map[plan.Step]uint64) {
	t.Helper()
	for step, bits := range want {
		if got[step] != bits {
			t.Errorf("%s: held-out loss in float32 of step %d is %v, want %v", name, step, math.Float64frombits(got[step]), math.Float64frombits(bits))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d held-out losses in float32, want %d", name, len(got), len(want))
	}
}
