package pipeline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/pipeline/model"
	"pnode/planner"
)

// patterned is a text without a file: windows of a byte sequence with structure.
type patterned struct{ context int }

func (p patterned) window(start, batch int) (tokens, targets []int32, err error) {
	at := func(i int) int32 { return int32((i*i + i/3) % 61) }
	for b := range batch {
		for t := range p.context {
			tokens = append(tokens, at(start+b*97+t))
			targets = append(targets, at(start+b*97+t+1))
		}
	}
	return tokens, targets, nil
}

func (p patterned) Micro(_ context.Context, step planner.Step, micro planner.Micro, batch int) (tokens, targets []int32, err error) {
	return p.window(int(step)*1009+int(micro)*31, batch)
}

func (p patterned) HeldOut(_ context.Context, index, batch int) (tokens, targets []int32, err error) {
	return p.window(1_000_003+index*7, batch)
}

func (p patterned) HeldOutMicros(_, limit int) int { return min(2, limit) }

// DocumentStarts says that a document ends with each token 1.
func (p patterned) DocumentStarts(tokens []int32) []int32 {
	starts := make([]int32, len(tokens))
	for i := range tokens {
		if t := i % p.context; t > 0 {
			starts[i] = starts[i-1]
			if tokens[i-1] == 1 {
				starts[i] = int32(t)
			}
		}
	}
	return starts
}

// memoryKeeper holds the last saved states of all stages.
type memoryKeeper struct {
	mu     sync.Mutex // guards layers
	layers map[planner.Step]map[int][]byte
}

func (k *memoryKeeper) Save(_ context.Context, s State) error {
	states := map[int][]byte{}
	for _, l := range s.Layers {
		state, err := io.ReadAll(l)
		if err != nil {
			return err
		}
		states[l.Layer] = state
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.layers == nil {
		k.layers = map[planner.Step]map[int][]byte{}
	}
	if k.layers[s.Step] == nil {
		k.layers[s.Step] = map[int][]byte{}
	}
	maps.Copy(k.layers[s.Step], states)
	return nil
}

// from is a keeper that loads the states saved at a step.
type from struct {
	*memoryKeeper
	step planner.Step
}

func (f from) Load(_ context.Context, layer int, dst io.Writer) error {
	state, ok := f.layers[f.step][layer]
	if !ok {
		return fmt.Errorf("layer %d of step %d was not saved", layer, f.step)
	}
	for _, part := range [][]byte{state[:5], state[5:6], state[6:]} { // pieces of any size
		if _, err := dst.Write(part); err != nil {
			return err
		}
	}
	return nil
}

func testRun() planner.RunSpec {
	return planner.RunSpec{
		Run:   "test",
		Model: model.Config{Vocab: 64, Context: 16, Blocks: 3, Heads: 2, Channels: 32},
		Train: planner.TrainSpec{
			Seed: 7, Steps: 6, Micros: 4, MicroBatch: 2, LR: 3e-3, MinLR: 3e-4, WarmupSteps: 2,
			Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, ClipNorm: 0.5, HeldOutEvery: 2, CheckpointEvery: 3,
		},
	}
}

// cut makes a plan: for each replica the layers at which a new stage begins.
func cut(run planner.RunSpec, scheduleName string, bounds ...[]int) planner.Plan {
	p := planner.Plan{Run: run.Run, Generation: 1, Schedule: scheduleName}
	for r, starts := range bounds {
		share := run.Train.Micros / len(bounds)
		pipe := planner.Pipeline{FirstMicro: planner.Micro(r * share), Micros: share}
		for s, first := range starts {
			end := run.Model.Layers()
			if s+1 < len(starts) {
				end = starts[s+1]
			}
			pipe.Stages = append(pipe.Stages, planner.Placement{
				Peer: planner.PeerID(fmt.Sprintf("peer-%d-%d", r, s)), Device: "cpu", Codec: "f32",
				Layers: planner.LayerRange{First: first, End: end},
			})
			pipe.Warmups = append(pipe.Warmups, len(starts)-1-s)
		}
		p.Replicas = append(p.Replicas, pipe)
	}
	return p
}

// result is what a whole run showed: the losses by step, as bits, and held-out losses.
type result struct {
	losses  map[planner.Step]uint64
	heldOut map[planner.Step]uint64
}

// train carries a plan out with all its workers in this process and wants every worker to
// report the same.
func train(t *testing.T, run planner.RunSpec, plan planner.Plan, keeper *memoryKeeper) result {
	t.Helper()
	out := result{losses: map[planner.Step]uint64{}, heldOut: map[planner.Step]uint64{}}
	var mu sync.Mutex // guards out
	onStep := func(r StepResult) {
		mu.Lock()
		defer mu.Unlock()
		if r.HeldOut != nil {
			agree(t, out.heldOut, r.Step, r.Final, *r.HeldOut)
		}
		if !r.Final {
			agree(t, out.losses, r.Step, false, r.Loss)
		}
	}
	trainWith(t, run, plan, from{keeper, plan.Start}, onStep)
	return out
}

func trainWith(t *testing.T, run planner.RunSpec, plan planner.Plan, keeper Keeper, onStep func(StepResult)) {
	t.Helper()
	trainOn(t, run, plan, keeper, patterned{run.Model.Context}, onStep)
}

// trainOn carries a plan out with all its workers in this process.
func trainOn(t *testing.T, run planner.RunSpec, plan planner.Plan, keeper Keeper, data Data, onStep func(StepResult)) {
	t.Helper()
	net := newMemoryNet()
	var workers []*Worker
	for _, seat := range plan.Seats() {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		w, err := New(Config{
			Seat: seat, Run: run, Plan: plan,
			Device: device, Data: data, Exchange: memoryExchange{net, seat.Peer},
			Keeper: keeper, Stop: func() bool { return false }, OnLoaded: func() {}, OnStep: onStep, Log: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		workers = append(workers, w)
	}
	runAll(t, workers)
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
func agree(t *testing.T, have map[planner.Step]uint64, step planner.Step, final bool, v float64) {
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
	if len(got.losses) != len(want.losses) || len(got.heldOut) != len(want.heldOut) {
		t.Errorf("%s: %d losses and %d held-out, want %d and %d", name, len(got.losses), len(got.heldOut), len(want.losses), len(want.heldOut))
	}
}

func TestLossesDoNotDependOnTheCut(t *testing.T) {
	run := testRun()
	want := train(t, run, cut(run, "1f1b", []int{0}), &memoryKeeper{})
	if first, last := math.Float64frombits(want.losses[1]), math.Float64frombits(want.losses[run.Train.Steps]); !(last < first) {
		t.Errorf("the loss went from %v to %v: nothing was learnt", first, last)
	}
	for _, c := range []struct {
		name, schedule string
		starts         []int
	}{
		{"two stages", "1f1b", []int{0, 3}},
		{"five stages", "1f1b", []int{0, 1, 2, 3, 4}},
		{"three stages of gpipe", "gpipe", []int{0, 1, 4}},
	} {
		equal(t, c.name, train(t, run, cut(run, c.schedule, c.starts), &memoryKeeper{}), want)
	}
}

func TestReplicasRepeatToTheBitHoweverTheyAreCut(t *testing.T) {
	run := testRun()
	want := train(t, run, cut(run, "1f1b", []int{0}, []int{0}), &memoryKeeper{})
	equal(t, "unlike cuts", train(t, run, cut(run, "1f1b", []int{0, 2}, []int{0, 1, 4}), &memoryKeeper{}), want)
}

func TestResumeOnAnotherCutGivesTheSameLosses(t *testing.T) {
	run := testRun()
	keeper := &memoryKeeper{}
	whole := train(t, run, cut(run, "1f1b", []int{0, 2}), keeper)
	equal(t, "resumed", resume(t, run, keeper), whole.after(run.Train.CheckpointEvery))
}

// resume goes on from the first checkpoint, in three stages.
func resume(t *testing.T, run planner.RunSpec, keeper *memoryKeeper) result {
	t.Helper()
	rest := cut(run, "1f1b", []int{0, 1, 3})
	rest.Start, rest.Generation = run.Train.CheckpointEvery, 2
	return train(t, run, rest, keeper)
}

// after is what was reported of the steps behind one.
func (r result) after(start planner.Step) result {
	rest := result{losses: map[planner.Step]uint64{}, heldOut: map[planner.Step]uint64{}}
	for step, bits := range r.losses {
		if step > start {
			rest.losses[step] = bits
		}
	}
	for step, bits := range r.heldOut {
		if step > start {
			rest.heldOut[step] = bits
		}
	}
	return rest
}

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
		w, err := New(Config{
			Seat: place.Seat(), Run: run, Plan: plan, Device: device,
			Data: patterned{run.Model.Context}, Exchange: memoryExchange{net, place.Peer}, Keeper: from{keeper, 0},
			Stop:     func() bool { asked++; return asked == 2 },
			OnLoaded: func() {}, OnStep: func(StepResult) {}, Log: slog.New(slog.DiscardHandler),
		})
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
	w, err := New(Config{
		Seat: plan.Seats()[1], Run: run, Plan: plan, Device: device,
		Data: patterned{run.Model.Context}, Exchange: memoryExchange{newMemoryNet(), "x"}, Keeper: from{&memoryKeeper{}, 0},
		Stop: func() bool { return false }, OnLoaded: func() {}, OnStep: func(StepResult) {}, Log: slog.New(slog.DiscardHandler),
	})
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

func TestNewNamesWhatDoesNotFit(t *testing.T) {
	run := testRun()
	good := cut(run, "1f1b", []int{0})
	for name, change := range map[string]func(*Config){
		"generation 0":     func(c *Config) { c.Plan.Generation = 0 },
		"foreign stage":    func(c *Config) { c.Seat.Peer = "someone" },
		"unknown schedule": func(c *Config) { c.Plan.Schedule = "magic" },
		"no such device":   func(c *Config) { c.Seat.Device = "cuda:7" },
	} {
		cfg := Config{Seat: good.Seats()[0], Run: run, Plan: good}
		change(&cfg)
		if _, err := New(cfg); !errors.Is(err, ErrBadConfig) {
			t.Errorf("%s: got %v, want ErrBadConfig", name, err)
		}
	}
}

// overflowing is a device whose gradients are infinite: GELU's backward says so.
type overflowing struct{ kernels.Device }

type overflowingQueue struct{ kernels.Queue }

func (d overflowing) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return overflowingQueue{q}, err
}

func (q overflowingQueue) Do(c kernels.Call) {
	q.Queue.Do(c)
	if c.Op == kernels.OpGELUBackward {
		q.Queue.Do(kernels.Fill(c.Args[0], c.Dims[0], float32(math.Inf(1))))
	}
}

func TestAnInfiniteGradientLeavesTheModelAsItWas(t *testing.T) {
	run := testRun()
	plan := cut(run, "1f1b", []int{0})
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	keeper := &memoryKeeper{}
	w, err := New(Config{
		Seat: plan.Seats()[0], Run: run, Plan: plan, Device: overflowing{device},
		Data: patterned{run.Model.Context}, Exchange: memoryExchange{newMemoryNet(), "x"}, Keeper: from{keeper, 0},
		Stop: func() bool { return false }, OnLoaded: func() {}, OnStep: func(StepResult) {}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	runAll(t, []*Worker{w})
	for layer := range run.Model.Layers() {
		want := make([]float32, run.Model.LayerLen(layer))
		run.Model.InitLayer(layer, run.Train.Seed, want)
		got := kernels.AsFloat32(LayerParams(run.Model, layer, keeper.layers[run.Train.Steps][layer]))
		if !slices.Equal(got, want) {
			t.Fatalf("layer %d was changed by updates that were to be skipped", layer)
		}
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
	w, err := New(Config{
		Seat: plan.Seats()[0], Run: run, Plan: plan, Device: device,
		Data: patterned{run.Model.Context}, Exchange: memoryExchange{newMemoryNet(), "x"}, Keeper: from{&memoryKeeper{}, 0},
		Stop: func() bool { return false }, OnLoaded: func() {}, Log: slog.New(slog.DiscardHandler),
		OnStep: func(StepResult) { steps++; cancel() },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := w.Run(ctx, ctx); !errors.Is(err, context.Canceled) || steps != 1 {
		t.Fatalf("after %d steps: %v, want 1 and the context's error", steps, err)
	}
}
