package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/pipeline/replay"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// wantFault wants an error to hold a fault of this kind, step and accused.
func wantFault(t *testing.T, err error, want plan.Fault) *plan.Fault {
	t.Helper()
	var got *plan.Fault
	if !errors.As(err, &got) || got.Accused != want.Accused || got.Kind != want.Kind || got.Step != want.Step {
		t.Errorf("got %v, want the fault %q of %s in step %d", err, want.Kind, want.Accused, want.Step)
		return &plan.Fault{}
	}
	return got
}

// corrupt is an exchange of a peer that changes what it sends.
type corrupt struct {
	collective.MemoryEnd
	change func(wire.Frame) wire.Frame
}

func (c corrupt) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	return c.MemoryEnd.Send(ctx, to, c.change(f))
}

// attack has one peer of a plan send what others do not expect.
type attack struct {
	run    plan.RunSpec
	plan   plan.Plan
	by     plan.PeerID
	change func(wire.Frame) wire.Frame
	keeper *memoryKeeper
	on     func(kernels.Device) kernels.Device // what its device does; nil: as others' do
	config func(*Config)                       // changes each worker's; may be nil
}

// errsOf carries an attacked plan out until a worker fails, ends the others, and returns what the workers of
// honest peers ended with.
func (a attack) errsOf(t *testing.T) map[plan.PeerID]error {
	t.Helper()
	net := collective.NewMemory()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if a.keeper == nil {
		a.keeper = &memoryKeeper{}
	}
	var work sync.WaitGroup
	var mu sync.Mutex // guards errs
	errs := map[plan.PeerID]error{}
	for _, seat := range a.plan.Workers() {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		cfg := usual(Config{
			Worker: seat, Run: a.run, Plan: a.plan, Device: device, Host: &host.Memory{},
			Exchange: net.End(seat.Peer), Keeper: from{a.keeper, a.plan.Start},
		})
		if seat.Peer == a.by && a.on != nil {
			cfg.Device = a.on(device)
		}
		if seat.Peer == a.by && a.change != nil {
			cfg.Exchange = corrupt{net.End(seat.Peer), a.change}
		}
		if a.config != nil {
			a.config(&cfg)
		}
		w, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		work.Go(func() {
			if seat.Peer == a.by && a.on == nil {
				_ = errors.Join(w.Run(ctx, ctx), w.Saved()) // it may lie
				return
			}
			err := w.Run(ctx, ctx)
			if err != nil {
				cancel()
			}
			if err = errors.Join(err, w.Saved()); err != nil {
				cancel() // another's save may wait for this one's
			}
			mu.Lock()
			defer mu.Unlock()
			errs[seat.Peer] = err
		})
	}
	work.Wait()
	return errs
}

// wantBlame wants the first worker that failed to accuse the attacker, and nobody to accuse another.
func (a attack) wantBlame(t *testing.T, kind plan.FaultKind, step plan.Step, words string) {
	t.Helper()
	found := 0
	for peer, err := range a.errsOf(t) {
		var fault *plan.Fault
		if !errors.As(err, &fault) {
			continue
		}
		found++
		if fault.Accused != a.by || fault.Kind != kind || fault.Step != step || !strings.Contains(fault.Detail, words) {
			t.Errorf("%s says: %s did %v; want %s, %q in step %d and %q", peer, fault.Accused, fault, a.by, kind, step, words)
		}
	}
	if found == 0 {
		t.Errorf("nobody accuses %s of %q in step %d", a.by, kind, step)
	}
}

// inStep changes the frames of a kind from a step on.
func inStep(kind wire.Kind, step plan.Step, change func([]byte) []byte) func(wire.Frame) wire.Frame {
	return func(f wire.Frame) wire.Frame {
		if f.Tag.Kind == kind && f.Tag.Step >= step {
			f.Payload = change(append([]byte(nil), f.Payload...))
		}
		return f
	}
}

// firstElement puts one in place of a float32 tensor's first element, after a front.
func firstElement(front int, x float32) func([]byte) []byte {
	return func(b []byte) []byte {
		copy(b[front:], kernels.Float32Bytes([]float32{x}))
		return b
	}
}

// TestNaNTensors: whatever carries it, a tensor that is not finite, or far too large, is refused before it
// reaches the device, and its sender is named with what it owed.
func TestNaNTensors(t *testing.T) {
	run := testRun()
	line, pair := cut(run, "1f1b", []int{0, 2, 3}), cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for name, a := range map[string]struct {
		plan  plan.Plan
		by    plan.PeerID
		kind  wire.Kind
		front int
		x     float32
		words string
	}{
		"activations":         {line, "peer-0-0", wire.Activation, 4, nan, "stage 0's activations of micro-batch "},
		"huge activations":    {line, "peer-0-1", wire.Activation, 4, 1e9, "stage 1's activations of micro-batch "},
		"gradients":           {line, "peer-0-2", wire.Gradient, 4, inf, "stage 2's gradients of micro-batch "},
		"activations in bf16": {withCodec(cut(run, "1f1b", []int{0, 2}), "bf16"), "peer-0-0", wire.Activation, 2, nan, "stage 0's"},
		"activations in int8": {withCodec(cut(run, "1f1b", []int{0, 2}), "int8"), "peer-0-0", wire.Activation, 4, nan, "stage 0's"},
		"a tied embedding":    {line, "peer-0-2", wire.TiedGrad, 0, nan, "tied embedding"},
		"a replica's part":    {pair, "peer-1-1", wire.ReducePart, 0, nan, "replica 1's part of layer "},
		"a sum":               {pair, "peer-1-0", wire.GatherPart, 0, nan, "that replica 1 owns"},
		"parameters":          {sharded(pair), "peer-1-0", wire.GatherPart, 0, nan, "that replica 1 owns"},
	} {
		t.Run(name, func(t *testing.T) {
			attack{run: run, plan: a.plan, by: a.by, change: inStep(a.kind, 2, firstElement(a.front, a.x))}.wantBlame(t, plan.BadTensor, 2, a.words)
		})
	}
}

// everyElement puts one in place of all of a float32 tensor's elements, after a front.
func everyElement(front int, x float32) func([]byte) []byte {
	return func(b []byte) []byte {
		for i := front; i < len(b); i += 4 {
			copy(b[i:], kernels.Float32Bytes([]float32{x}))
		}
		return b
	}
}

// TestNearTheBound: a tensor that its receiver takes does not drive honest workers after it out of bounds, so
// that one would accuse itself; what is larger is its sender's fault.
func TestNearTheBound(t *testing.T) {
	run := testRun()
	for name, p := range map[string]plan.Plan{
		"a line": cut(run, "1f1b", []int{0, 1, 2, 3, 4}), "replicas": cut(run, "1f1b", []int{0, 1, 2, 3, 4}, []int{0, 1, 2, 3, 4}),
	} {
		w := program{spec: run, plan: p}
		last := plan.Stage(len(p.Replicas[0].Stages) - 1)
		for _, tag := range []wire.Tag{{Kind: wire.Activation, Stage: 1}, {Kind: wire.Gradient, Stage: last - 1}} {
			by := p.Replicas[0].Stages[0].Peer
			if tag.Kind == wire.Gradient {
				by = p.Replicas[0].Stages[last].Peer
			}
			bound := w.limit(tag)
			t.Run(fmt.Sprintf("%s, %v within", name, tag.Kind), func(t *testing.T) {
				change := inStep(tag.Kind, 2, everyElement(4, math.Nextafter32(bound, 0)))
				for peer, err := range (attack{run: run, plan: p, by: by, change: change}).errsOf(t) {
					if err != nil {
						t.Errorf("%s: %v", peer, err)
					}
				}
			})
			t.Run(fmt.Sprintf("%s, %v beyond", name, tag.Kind), func(t *testing.T) {
				change := inStep(tag.Kind, 2, everyElement(4, 1.5*bound))
				attack{run: run, plan: p, by: by, change: change}.wantBlame(t, plan.BadTensor, 2, "magnitudes below")
			})
		}
	}
}

// TestLimitsGrowOnTheWay: each stage may send more than it may be sent, however many stages there are.
func TestLimitsGrowOnTheWay(t *testing.T) {
	for stages := 2; stages <= 64; stages++ {
		p := program{plan: plan.Plan{Replicas: []plan.Pipeline{{Stages: make([]plan.Placement, stages)}}}}
		limit := func(k wire.Kind, to int) float32 { return p.limit(wire.Tag{Kind: k, Stage: plan.Stage(to)}) }
		for to := 2; to < stages; to++ {
			if before, after := wire.RoundedUp(limit(wire.Activation, to-1)), limit(wire.Activation, to); after < before+wire.Activation.Bound()/4 {
				t.Errorf("%d stages: stage %d may send %g, and be sent %g", stages, to-1, after, before)
			}
		}
		for to := stages - 3; to >= 0; to-- {
			if before, after := wire.RoundedUp(limit(wire.Gradient, to+1)), limit(wire.Gradient, to); after < 1.1*before {
				t.Errorf("%d stages: stage %d may send %g, and be sent %g", stages, to+1, after, before)
			}
		}
		if least := limit(wire.Gradient, stages-2); least < 256*0.999 {
			t.Errorf("%d stages: the last one may send gradients of %g", stages, least)
		}
	}
}

// TestHalfATensor: a message of another length than its tag's is a fault of its sender.
func TestHalfATensor(t *testing.T) {
	run := testRun()
	half := func(b []byte) []byte { return b[:len(b)/2] }
	twice := func(b []byte) []byte { return append(b, b...) }
	nothing := func([]byte) []byte { return nil }
	for name, change := range map[string]func([]byte) []byte{"half": half, "twice": twice, "nothing": nothing} {
		for _, codec := range []string{"f32", "bf16", "int8", "int4"} {
			p := withCodec(cut(run, "1f1b", []int{0, 2}), codec)
			t.Run(name+" in "+codec, func(t *testing.T) {
				attack{run: run, plan: p, by: "peer-0-0", change: inStep(wire.Activation, 2, change)}.wantBlame(t, plan.BadFrame, 2, "stage 0's activations of micro-batch ")
			})
		}
		t.Run(name+" of a sum", func(t *testing.T) {
			p := cut(run, "1f1b", []int{0}, []int{0})
			attack{run: run, plan: p, by: "peer-1-0", change: inStep(wire.ReducePart, 2, change)}.wantBlame(t, plan.BadFrame, 2, "replica 1's part of layer ")
		})
	}
}

// TestOwnOverflowAccusesItself: a worker whose own result is not finite says so, and sends nothing that
// the others would blame it for.
func TestOwnOverflowAccusesItself(t *testing.T) {
	for _, storage := range []model.Storage{model.StorageF32, model.StorageBF16} {
		run := stores(testRun(), storage)
		p := cut(run, "1f1b", []int{0})
		err := runAlone(t, run, p, &memoryKeeper{}, func(d kernels.Device) kernels.Device { return overflowing{d} })
		wantFault(t, err, plan.Fault{Accused: "peer-0-0", Kind: plan.BadReport, Step: 1})
	}
}

// TestLossScalingThatNeverStopsIsDivergence: updates are skipped until 8 in a row were; then the
// coordinator says that the run has diverged.
func TestLossScalingThatNeverStopsIsDivergence(t *testing.T) {
	run := stores(testRun(), model.StorageF16)
	run.Train.Steps = maxSkipped + 4
	p := cut(run, "1f1b", []int{0})
	err := runAlone(t, run, p, &memoryKeeper{}, func(d kernels.Device) kernels.Device { return overflowing{d} })
	fault := wantFault(t, err, plan.Fault{Accused: "peer-0-0", Kind: plan.BadParameters, Step: maxSkipped})
	if !strings.Contains(fault.Detail, "diverged") {
		t.Errorf("%v does not say that the run has diverged", fault)
	}
}

// TestNotFiniteInF16: a worker that has updates skipped, by what it reports or by the gradients that it sends to
// honest ones, is named, also where it lets some steps pass.
func TestNotFiniteInF16(t *testing.T) {
	run := stores(testRun(), model.StorageF16)
	run.Train.Steps = 20
	line, pair := cut(run, "1f1b", []int{0, 2, 3}), cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	report := func(b []byte) []byte {
		r, err := wire.DecodeReport(b)
		if err != nil {
			t.Error(err)
		}
		r.SumSquares[0].Sum = math.NaN()
		return wire.AppendReport(nil, r)
	}
	inf := firstElement(4, float32(math.Inf(1)))
	for name, c := range map[string]struct {
		plan   plan.Plan
		by     plan.PeerID
		frames wire.Kind
		change func([]byte) []byte
		pause  plan.Step // one step in so many it is honest
		kind   plan.FaultKind
		step   plan.Step
	}{
		"reports":                {line, "peer-0-0", wire.KindReport, report, 100, plan.BadReport, 9},
		"reports between stages": {line, "peer-0-1", wire.KindReport, report, 100, plan.BadReport, 9},
		"reports with pauses":    {line, "peer-0-1", wire.KindReport, report, 4, plan.BadReport, 15},
		"gradients":              {line, "peer-0-1", wire.Gradient, inf, 100, plan.BadTensor, 8},
		"parts of a sum":         {pair, "peer-1-1", wire.ReducePart, firstElement(0, float32(math.NaN())), 100, plan.BadTensor, 9},
	} {
		t.Run(name, func(t *testing.T) {
			change := func(f wire.Frame) wire.Frame {
				if f.Tag.Step%c.pause == 0 {
					return f
				}
				return inStep(c.frames, 1, c.change)(f)
			}
			attack{run: run, plan: c.plan, by: c.by, change: change}.wantBlame(t, c.kind, c.step, "not finite")
		})
	}
	t.Run("a coordinator that skips on", func(t *testing.T) {
		change := inStep(wire.KindCommit, 1, recommit(t, func(c *wire.Commit) { c.Norm, c.GradScale = math.NaN(), 0 }))
		attack{run: run, plan: line, by: "peer-0-2", change: change}.wantBlame(t, plan.BadCommit, 10, "skips update after update")
	})
}

// TestOverflowInTheMiddleIsDivergence: an honest stage whose own gradients overflow says so itself, and the stage
// before, which is sent them, names no other.
func TestOverflowInTheMiddleIsDivergence(t *testing.T) {
	run := stores(testRun(), model.StorageF16)
	run.Train.Steps = 20
	a := attack{
		run: run, plan: cut(run, "1f1b", []int{0, 2, 3}), by: "peer-0-1",
		on: func(d kernels.Device) kernels.Device { return overflowing{d} },
	}
	found := 0
	for peer, err := range a.errsOf(t) {
		var fault *plan.Fault
		if !errors.As(err, &fault) {
			continue
		}
		found++
		want := plan.Fault{Accused: a.by, Kind: plan.BadTensor, Step: maxSkipped}
		if peer == a.by {
			want.Kind = plan.BadParameters
		}
		wantFault(t, err, want)
	}
	if found == 0 {
		t.Error("nobody says that the run diverges")
	}
}

// runAlone carries a plan of one worker out and returns its error.
func runAlone(t *testing.T, run plan.RunSpec, p plan.Plan, keeper *memoryKeeper, as func(kernels.Device) kernels.Device) error {
	t.Helper()
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	w, err := New(usual(Config{Worker: p.Workers()[0], Run: run, Plan: p, Device: as(device), Keeper: from{keeper, p.Start}}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	return errors.Join(w.Run(t.Context(), t.Context()), w.Saved())
}

// decaying is a device whose updates leave an infinite element in the second moments. No loss shows that.
type decaying struct{ kernels.Device }

type decayingQueue struct{ kernels.Queue }

func (d decaying) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return decayingQueue{q}, err
}

func (q decayingQueue) Do(c kernels.Call) {
	q.Queue.Do(c)
	if c.Op == kernels.OpAdamW {
		q.Queue.Do(kernels.Fill(c.Args[2].Slice(0, 1), 1, float32(math.Inf(1))))
	}
}

// TestNonFiniteStateIsNotSaved: a state with an element that is not finite is never whole in the
// keeper, and the worker that has it accuses itself.
func TestNonFiniteStateIsNotSaved(t *testing.T) {
	run := testRun()
	run.Train.Steps = 1 // and the save after it
	alone, pair := cut(run, "1f1b", []int{0}), sharded(cut(run, "1f1b", []int{0}, []int{0}))
	for _, a := range []attack{{plan: alone, by: "peer-0-0"}, {plan: pair, by: "peer-0-0"}, {plan: pair, by: "peer-1-0"}} {
		a.run, a.keeper = run, &memoryKeeper{}
		a.on = func(d kernels.Device) kernels.Device { return decaying{d} }
		a.wantBlame(t, plan.BadParameters, 1, "state")
		if len(a.keeper.layers[1]) > 0 {
			t.Errorf("%s: a state that is not finite was saved", a.by)
		}
	}
}

// TestNonFiniteCheckpointIsNamed: a worker does not train from a state that is not finite, and says which
// checkpoint has it.
func TestNonFiniteCheckpointIsNamed(t *testing.T) {
	run := testRun()
	p, keeper := cut(run, "1f1b", []int{0}), &memoryKeeper{}
	train(t, run, p, keeper)
	p.Generation, p.Start = 2, run.Train.CheckpointEvery
	state := keeper.layers[p.Start][3]
	copy(state[len(state)-4:], kernels.Float32Bytes([]float32{float32(math.NaN())}))
	err := runAlone(t, run, p, keeper, asItIs)
	fault := wantFault(t, err, plan.Fault{Accused: "peer-0-0", Kind: plan.BadParameters, Step: p.Start})
	if want := fmt.Sprintf("the checkpoint of step %d, layer 3", p.Start); !strings.Contains(fault.Detail, want) {
		t.Errorf("%v, want %q", fault, want)
	}
}

// elsewhere is an exchange to which another peer brings what is from a lost one by the plan.
type elsewhere struct {
	collective.Exchange
	lost, by plan.PeerID
}

func (e elsewhere) Brought(from plan.PeerID, _ wire.Tag) plan.PeerID {
	if from == e.lost {
		return e.by
	}
	return from
}

// unpaced is a device with a clock that waits do not matter to.
type unpaced struct{}

func (unpaced) Waited(time.Time) {}

// TestWhoBroughtAMessageIsAccused, and not whom it is from by the plan.
func TestWhoBroughtAMessageIsAccused(t *testing.T) {
	run := testRun()
	broken := func([]byte) []byte { return []byte{1} }
	scaling := stores(testRun(), model.StorageF16)
	scaling.Train.Steps = 20
	skips := recommit(t, func(c *wire.Commit) { c.Norm, c.GradScale = math.NaN(), 0 })
	const by = "substitute"
	for name, c := range map[string]struct {
		run    plan.RunSpec
		lost   plan.PeerID
		change func(wire.Frame) wire.Frame
		step   plan.Step
	}{
		"an activation":               {run, "peer-0-0", inStep(wire.Activation, 2, broken), 2},
		"a gradient":                  {run, "peer-1-1", inStep(wire.Gradient, 2, broken), 2},
		"a replica's part":            {run, "peer-1-0", inStep(wire.ReducePart, 2, broken), 2},
		"a report":                    {run, "peer-1-0", inStep(wire.KindReport, 2, broken), 2},
		"a commit":                    {run, "peer-0-1", inStep(wire.KindCommit, 2, broken), 2},
		"a coordinator that skips on": {scaling, "peer-0-1", inStep(wire.KindCommit, 1, skips), 10},
	} {
		t.Run(name, func(t *testing.T) {
			found := 0
			for peer, err := range (attack{
				run: c.run, plan: cut(c.run, "1f1b", []int{0, 2}, []int{0, 2}), by: c.lost, change: c.change,
				config: func(config *Config) {
					kept := replay.NewLogs(config.Worker.Peer).Begin(1, 0, 0).Keep(elsewhere{config.Exchange, c.lost, by})
					config.Exchange = Paced(kept, unpaced{})
				},
			}).errsOf(t) {
				if fault := (*plan.Fault)(nil); errors.As(err, &fault) {
					found++
					if fault.Accused != by || fault.Step != c.step {
						t.Errorf("%s accuses %s: %v", peer, fault.Accused, fault)
					}
				}
			}
			if found == 0 {
				t.Error("nobody is accused")
			}
		})
	}
}
