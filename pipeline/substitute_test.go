package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// TestASubstituteGoesOnWithTheSameBits: wherever in its steps a worker is lost, another replica's state and what was sent to it are
// enough to go on in the same generation, and nobody else does anything again.
func TestASubstituteGoesOnWithTheSameBits(t *testing.T) {
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery, run.Model.ResidualDropout = 3, 2, 0.25
	coded := cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	for r := range coded.Replicas {
		coded.Replicas[r].Stages[0].Codec = "int8"
	}
	for name, p := range map[string]plan.Plan{"in f32": cut(run, "1f1b", []int{0, 2}, []int{0, 2}), "cut elsewhere": cut(run, "1f1b", []int{0, 3}, []int{0, 2}), "in int8": coded} {
		saved := &memoryKeeper{}
		want := train(t, run, p, saved)
		for _, c := range []struct{ lost, by plan.PeerID }{{"peer-0-0", "peer-1-0"}, {"peer-0-1", "peer-1-1"}, {"peer-1-0", "peer-0-0"}, {"peer-1-1", "peer-0-1"}} {
			if !slices.Contains(p.Substitutes(c.lost), c.by) {
				continue
			}
			t.Run(fmt.Sprintf("%s, %s", name, c.lost), func(t *testing.T) {
				every := 3
				if testing.Short() {
					every = 7
				}
				for after, died := 0, true; died; after += every {
					got := loss{run: run, plan: p, lost: c.lost, by: c.by, after: after}.train(t)
					equal(t, fmt.Sprintf("after %d", after), got.result, want)
					equalStates(t, fmt.Sprintf("after %d", after), got.states, saved)
					if died = !got.lived; got.lived && after < 20 {
						t.Errorf("a worker does %d things in all", after)
					}
				}
			})
		}
	}
}

// onTwoDevices has one peer compute a replica, each stage on a device of its own.
func onTwoDevices(p plan.Plan) plan.Plan {
	for r, pipe := range p.Replicas {
		for s := range pipe.Stages {
			pipe.Stages[s].Peer, pipe.Stages[s].Device = plan.PeerID(fmt.Sprintf("peer-%d", r)), fmt.Sprintf("cpu:%d", s)
		}
	}
	return p
}

// TestASubstituteGoesOnForTwoDevices: what a lost peer's workers had sent to each other is lost with it, so both go on after one step.
func TestASubstituteGoesOnForTwoDevices(t *testing.T) {
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery = 3, 2
	p, saved := onTwoDevices(cut(run, "1f1b", []int{0, 2}, []int{0, 2})), &memoryKeeper{}
	want := train(t, run, p, saved)
	for after, lived := 0, false; !lived; after += 7 {
		got := loss{run: run, plan: p, lost: "peer-1", by: "peer-0", after: after}.train(t)
		equal(t, fmt.Sprintf("after %d", after), got.result, want)
		equalStates(t, fmt.Sprintf("after %d", after), got.states, saved)
		lived = got.lived
	}
}

// lateCommit is an exchange to which the commit of a step comes once it is let through.
type lateCommit struct {
	collective.MemoryEnd
	step    plan.Step
	through <-chan struct{}
}

func (e lateCommit) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	if tag.Kind == wire.KindCommit && tag.Step == e.step {
		select {
		case <-e.through:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return e.MemoryEnd.Receive(ctx, from, tag)
}

// TestWorkersAreHeldAfterOneStep: one that has not got a commit yet is waited for, and the state of all is that of the step.
func TestWorkersAreHeldAfterOneStep(t *testing.T) {
	run := testRun()
	run.Train.CheckpointEvery = 1
	p, saved, net := cut(run, "1f1b", []int{0, 2}), &memoryKeeper{}, collective.NewMemory()
	train(t, run, p, saved)
	through, ahead := make(chan struct{}), make(chan struct{})
	var workers []*Worker
	for i, id := range p.Workers() {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer device.Close()
		end := net.End(id.Peer)
		c := Config{Worker: id, Run: run, Plan: p, Device: device, Exchange: end}
		if i == 0 {
			c.Exchange = lateCommit{end, 2, through}
		} else {
			c.OnStep = func(s StepResult) {
				if s.Step == 2 && !s.Final {
					close(ahead)
				}
			}
		}
		w, err := New(usual(c))
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		workers = append(workers, w)
	}
	var group errgroup.Group
	for _, w := range workers {
		group.Go(func() error { return errors.Join(w.Run(t.Context(), t.Context()), w.Saved()) })
	}
	<-ahead
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if h, err := Hold(over, workers...); err == nil {
		h.Release()
		t.Error("workers are held after different steps")
	} else if !errors.Is(err, ErrNoCopy) {
		t.Errorf("a worker that is a step behind: %v", err)
	}
	close(through)
	held, err := Hold(t.Context(), workers...)
	if err != nil {
		t.Fatal(err)
	}
	for layer := range run.Model.Layers() {
		var state bytes.Buffer
		if err := held.Load(t.Context(), layer, Whole, &state); err != nil || !bytes.Equal(state.Bytes(), saved.layers[held.Step()][layer]) {
			t.Errorf("layer %d is not as it was saved after step %d: %v", layer, held.Step(), err)
		}
	}
	held.Release()
	if err := group.Wait(); err != nil {
		t.Error(err)
	}
}

// TestASubstituteRepeatsTheCommitsThatWereMade: a coordinator that wants a save and another schedule is lost between its messages, and its
// substitute wants neither. Whether a commit came to somebody decides, for all workers alike. The substitute's own node is the last one to
// get the commits of one plan, and the first one of the other.
func TestASubstituteRepeatsTheCommitsThatWereMade(t *testing.T) {
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery, run.Model.Blocks = 3, 0, 1
	for name, c := range map[string]struct {
		plan     plan.Plan
		lost, by plan.PeerID
		micros   []int // of the schedule that is wanted
	}{
		"the last":  {cut(run, "1f1b", []int{0, 2}, []int{0, 2}), "peer-0-1", "peer-1-1", []int{1, 3}},
		"the first": {cut(run, "1f1b", []int{0}, []int{0}, []int{0}, []int{0}), "peer-0-0", "peer-1-0", nil},
	} {
		t.Run(name, func(t *testing.T) {
			want := train(t, run, c.plan, &memoryKeeper{})
			decide := func(config *Config, substitute bool) {
				if config.Due = func(step plan.Step) bool { return step == 2 && !substitute }; !substitute {
					config.Next = func(plan.Step) plan.ScheduleChoice { return plan.ScheduleChoice{Schedule: "gpipe", Micros: c.micros} }
				}
			}
			saved := map[bool]int{}
			for after, died := 0, true; died; after += 2 {
				got := loss{run, c.plan, c.lost, c.by, after, decide}.train(t)
				equal(t, fmt.Sprintf("after %d", after), got.result, want)
				for step, layers := range got.states.layers {
					if len(layers) != run.Model.Layers() {
						t.Errorf("after %d: of step %d %d layers are saved", after, step, len(layers))
					}
				}
				saved[len(got.states.layers[2]) > 0]++
				died = !got.lived
			}
			if saved[true] < 2 || saved[false] < 2 {
				t.Errorf("step 2 is saved, or not, in so many runs: %v", saved)
			}
		})
	}
}

// TestOnlyACommitThatFollowsIsRepeated: other devices round otherwise, and that is all by which it may be off.
func TestOnlyACommitThatFollowsIsRepeated(t *testing.T) {
	own := wire.Commit{Loss: 2, Norm: 1}
	for _, c := range []struct {
		own, made wire.Commit
		want      bool
	}{
		{own, own, true},
		{own, wire.Commit{Loss: 2.001, Norm: 0.999, Save: true, Stop: true}, true},
		{own, wire.Commit{Loss: 2.1, Norm: 1}, false},
		{own, wire.Commit{Loss: 2, Norm: 100}, false},
		{own, wire.Commit{Loss: 2, Norm: math.NaN()}, false},
		{wire.Commit{Loss: 2, Norm: math.Inf(1)}, wire.Commit{Loss: 2, Norm: math.NaN()}, true},
	} {
		if got := alike(c.own, c.made); got != c.want {
			t.Errorf("%+v in place of %+v: %t, want %t", c.made, c.own, got, c.want)
		}
	}
	run := testRun()
	p, err := newProgram(run, cut(run, "1f1b", []int{0}), plan.WorkerID{Peer: "peer-0-0", Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	two, near, far := 2.0, 2.001, 2.1
	for _, c := range []struct {
		made []wire.Commit
		want wire.Commit
		err  error
	}{
		{nil, wire.Commit{HeldOut: &two}, nil},
		{[]wire.Commit{{Step: run.Train.Steps, Loss: 2}}, wire.Commit{HeldOut: &two}, nil},
		{[]wire.Commit{{HeldOut: &near}}, wire.Commit{HeldOut: &near}, nil},
		{[]wire.Commit{{HeldOut: &far}}, wire.Commit{}, ErrOtherCommit},
		{[]wire.Commit{{HeldOut: &two, HeldOutF32: &two}}, wire.Commit{HeldOut: &two, HeldOutF32: &two}, nil},
		{[]wire.Commit{{}}, wire.Commit{}, ErrOtherCommit},
		{[]wire.Commit{{HeldOut: &two, Save: true}}, wire.Commit{}, ErrOtherCommit},
	} {
		if got, err := p.repeatClosing(c.made, wire.Commit{HeldOut: &two}); !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%+v were made: %+v, %v, want %+v, %v", c.made, got, err, c.want, c.err)
		}
	}
}
