package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	"pnode/kernels/cpu"
	"pnode/kernels/host"
	"pnode/pipeline/collective"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

var errGone = errors.New("the peer is dead")

// mortalNet is a collective.Memory whose peers may die or leave: what they sent before still comes, then a call that waits
// for them fails.
type mortalNet struct {
	*collective.Memory
	alive map[plan.PeerID]context.Context
	leave map[plan.PeerID]context.CancelFunc
}

func newMortalNet(ctx context.Context, p plan.Plan) *mortalNet {
	n := &mortalNet{collective.NewMemory(), map[plan.PeerID]context.Context{}, map[plan.PeerID]context.CancelFunc{}}
	for _, peer := range p.Peers() {
		n.alive[peer], n.leave[peer] = context.WithCancel(ctx)
	}
	return n
}

// mortal is the end of a peer that dies before a call of a step: the one that is left with no calls.
type mortal struct {
	collective.MemoryEnd
	net   *mortalNet
	step  plan.Step
	kind  wire.Kind   // of the messages that count; zero: all
	mu    *sync.Mutex // guards calls
	calls *int        // left to live; nil: for ever
}

// live counts a call and reports whether the peer lives on.
func (m mortal) live(t wire.Tag) bool {
	if m.net.alive[m.Self].Err() != nil {
		return false
	}
	if m.calls == nil || t.Step != m.step || m.kind != 0 && t.Kind != m.kind {
		return true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if *m.calls--; *m.calls < 0 {
		m.net.leave[m.Self]()
	}
	return *m.calls >= 0
}

func (m mortal) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if !m.live(f.Tag) {
		return errGone
	}
	return m.MemoryEnd.Send(ctx, to, f)
}

func (m mortal) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	if !m.live(tag) {
		return nil, errGone
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, peer := range []plan.PeerID{m.Self, from} {
		defer context.AfterFunc(m.net.alive[peer], cancel)()
	}
	payload, err := m.MemoryEnd.Receive(ctx, from, tag) // what it sent before comes
	if err != nil && (m.net.alive[m.Self].Err() != nil || m.net.alive[from].Err() != nil) {
		return nil, fmt.Errorf("%v from %s: %w", tag, from, errGone)
	}
	return payload, err
}

// death is a run in which one worker dies in a step, and what the others have left.
type death struct {
	run  plan.RunSpec
	plan plan.Plan
	// The victim's calls in the step are counted; it dies when it has made so many.
	victim plan.PeerID
	step   plan.Step
	kind   wire.Kind // of what counts; zero: everything
	calls  int
	data   Data // nil: as most tests have it

	keeper *memoryKeeper
	out    result
	newest plan.Step // that a living worker took
	died   bool
}

// survivor is a living worker after the run.
type survivor struct {
	*Retained
	commits *Commits
}

// carryOut runs the plan until the death has ended it for everybody, and returns the living.
func (d *death) carryOut(t *testing.T) (living []survivor) {
	t.Helper()
	net, calls := newMortalNet(t.Context(), d.plan), d.calls
	d.out = newResult()
	var mu, turn sync.Mutex // mu guards out and newest, turn calls
	var work sync.WaitGroup
	for _, id := range d.plan.Workers() {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { device.Close() })
		exchange := mortal{net.Memory.End(id.Peer), net, d.step, d.kind, &turn, nil}
		if id.Peer == d.victim {
			exchange.calls = &calls
		}
		commits := &Commits{}
		w, err := New(usual(Config{
			Worker: id, Run: d.run, Plan: d.plan, Device: device, Host: &host.Memory{}, Exchange: exchange,
			Keeper: from{d.keeper, d.plan.Start}, Commits: commits, Data: d.data,
			OnStep: func(r StepResult) {
				mu.Lock()
				defer mu.Unlock()
				if id.Peer != d.victim && !r.Final {
					agree(t, d.out.losses, r.Step, false, r.Loss)
					d.newest = max(d.newest, r.Step)
				}
			},
		}))
		if err != nil {
			t.Fatal(err)
		}
		work.Go(func() {
			err := errors.Join(w.Run(t.Context(), t.Context()), w.Saved())
			net.leave[id.Peer]()
			if id.Peer == d.victim {
				d.died = err != nil
				w.Close()
				return
			}
			if err != nil && !errors.Is(err, errGone) {
				t.Errorf("%s: %v", id.Peer, err)
			}
			r, err := w.Retain()
			if err != nil {
				t.Errorf("%s: %v", id.Peer, err)
			}
			mu.Lock()
			defer mu.Unlock()
			living = append(living, survivor{r, commits})
		})
	}
	work.Wait()
	return living
}

// salvage brings all stages that are left to the newest step that one of them has, and has the keeper save them. It
// returns that step, and the layers that were saved.
func (d *death) salvage(t *testing.T, living []survivor) (newest plan.Step, layers map[int]bool) {
	t.Helper()
	layers = map[int]bool{}
	var commit wire.Commit
	for _, s := range living {
		defer s.Close()
		for _, at := range s.Reach() {
			newest = max(newest, at.Step)
		}
	}
	for _, s := range living {
		if _, c, ok := s.commits.At(newest); ok {
			commit = c
		}
	}
	for _, s := range living {
		for _, at := range s.Reach() {
			switch {
			case at.Step == newest:
			case at.Pending != newest:
				t.Errorf("replica %d stage %d is at step %d without the gradients of step %d, which another one has taken", at.Replica, at.Stage, at.Step, newest)
				continue
			default:
				wrong := commit
				wrong.Step++
				if s.Bring(t.Context(), wrong) == nil {
					t.Error("the commit of another step was applied")
				}
				if err := s.Bring(t.Context(), commit); err != nil {
					t.Error(err)
				}
			}
			have := maps.Clone(d.keeper.layers[newest])
			if err := s.Save(t.Context(), d.keeper.Save, at.StageID, d.plan.At(at.StageID).Layers); err != nil {
				t.Error(err)
			}
			for l := d.plan.At(at.StageID).Layers.First; l < d.plan.At(at.StageID).Layers.End; l++ {
				if layers[l] && !slices.Equal(have[l], d.keeper.layers[newest][l]) {
					t.Errorf("replicas have layer %d of step %d in different states", l, newest)
				}
				layers[l] = true
			}
		}
	}
	return newest, layers
}

// check carries a death out and wants the rest of the run, from what was salvaged, to be as without it.
func (d *death) check(t *testing.T, want result) {
	t.Helper()
	d.keeper = &memoryKeeper{}
	newest, layers := d.salvage(t, d.carryOut(t))
	if newest < d.newest {
		t.Errorf("the living had taken step %d, step %d is what was salvaged", d.newest, newest)
	}
	if len(layers) != d.run.Model.Layers() {
		t.Fatalf("layers %v of %d were salvaged", slices.Sorted(maps.Keys(layers)), d.run.Model.Layers())
	}
	next := d.plan
	next.Generation, next.Start = 2, newest
	if newest == 0 {
		d.keeper = &memoryKeeper{}
	}
	rest := train(t, d.run, next, d.keeper)
	for step := newest + 1; step <= d.run.Train.Steps; step++ {
		d.out.losses[step] = rest.losses[step]
	}
	if !maps.Equal(d.out.losses, want.losses) {
		t.Errorf("after step %d the losses are %v, want %v", newest, d.out.losses, want.losses)
	}
}

// checkAll has the victim die before each stride-th of its calls.
func (d death) checkAll(t *testing.T, stride int, want result) {
	t.Helper()
	for d.died = true; d.died; d.calls += stride {
		d.newest = 0
		d.check(t, want)
		if t.Failed() {
			t.Fatalf("it died after %d calls of step %d", d.calls, d.step)
		}
	}
	if d.calls <= 2*stride {
		t.Errorf("it made only %d calls", d.calls)
	}
}

// TestDeathAtEveryMessage: whichever message of a step a worker dies before, the living have the newest step that one
// of them has taken, the same in every replica, and go on from there as if nothing had been.
func TestDeathAtEveryMessage(t *testing.T) {
	run := shortRun()
	p := cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	want := train(t, run, p, &memoryKeeper{})
	stride := 1
	if testing.Short() {
		stride = 11
	}
	for _, victim := range p.Peers() {
		t.Run(string(victim), func(t *testing.T) {
			death{run: run, plan: p, victim: victim, step: 2}.checkAll(t, stride, want)
		})
	}
}

// TestDeathWithinTheCommit: the coordinator dies when some workers have its commit and others do not. These take it
// from the others, also where their optimizer state is in host memory.
func TestDeathWithinTheCommit(t *testing.T) {
	run := shortRun()
	p := cut(run, "1f1b", []int{0, 2}, []int{0, 2})
	for r := range p.Replicas {
		for s := range p.Replicas[r].Stages {
			p.Replicas[r].Stages[s].Offload = true
		}
	}
	want := train(t, run, p, &memoryKeeper{})
	death{run: run, plan: p, victim: p.Coordinator().Peer, step: 2, kind: wire.KindCommit}.checkAll(t, 1, want)
}

// TestPartsAreNotRetained: where replicas have optimizer state in parts, a living one cannot tell what the other's is.
func TestPartsAreNotRetained(t *testing.T) {
	run := shortRun()
	p := sharded(cut(run, "1f1b", []int{0, 2}, []int{0, 2}))
	d := death{run: run, plan: p, victim: "peer-1-0", step: 2, calls: 3, keeper: &memoryKeeper{}}
	for _, s := range d.carryOut(t) {
		defer s.Close()
		for _, at := range s.Reach() {
			if p.InParts(p.At(at.StageID).Layers.First) {
				t.Errorf("replica %d stage %d claims to have all of its state", at.Replica, at.Stage)
			}
		}
	}
}

// shortRun is a run of three steps and nothing else.
func shortRun() plan.RunSpec {
	run := testRun()
	run.Model.Blocks, run.Train.Steps, run.Train.CheckpointEvery, run.Train.HeldOutEvery = 2, 3, 0, 0
	return run
}
