package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/replay"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// sinceDone is an exchange that sends nothing of the steps that others are done with.
type sinceDone struct {
	collective.Exchange
	done plan.Step
}

func (e sinceDone) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if f.Tag.Step < e.done || f.Tag.Step == e.done && f.Tag.Kind != wire.KindCommit {
		return nil
	}
	return e.Exchange.Send(ctx, to, f)
}

// newestWhole returns the newest step of which all layers are saved.
func (k *memoryKeeper) newestWhole(layers int) (newest plan.Step) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for step, saved := range k.layers {
		if len(saved) == layers {
			newest = max(newest, step)
		}
	}
	return newest
}

// newest returns the newest commit's step.
func (c *Commits) newest() (newest plan.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for step := range c.kept {
		newest = max(newest, step)
	}
	return newest
}

// lateLoss is a run of one replica in which a worker is lost after some things that it does. The first other peer goes on in its
// place, from the newest checkpoint.
type lateLoss struct {
	run   plan.RunSpec
	plan  plan.Plan
	texts []string // of schedules, one for each step; none: the plan's
	lost  plan.PeerID
	after int
}

// lateResult holds what it comes to: after which step the substitute began, and which one its node had made then.
type lateResult struct {
	result      result
	states      *memoryKeeper
	lived       bool // the worker did all that it had to
	began, done plan.Step
}

func (l lateLoss) train(t *testing.T) lateResult {
	t.Helper()
	net, r := newKeepingNet(), lateResult{result: newResult(), states: &memoryKeeper{}, lived: true}
	var mu sync.Mutex // guards r.result and left
	left, logs, commits := l.after, map[plan.PeerID]*replay.Log{}, &Commits{}
	onStep := func(s StepResult) {
		mu.Lock()
		defer mu.Unlock()
		if !s.Final {
			agree(t, r.result.losses, s.Step, false, s.Loss)
		}
		r.result.evaluated(t, s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ends := map[plan.PeerID]chan error{}
	begin := func(c Config) {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { device.Close() })
		c.Run, c.Device, c.OnStep = l.run, device, onStep
		if l.texts != nil {
			c.Next = (&choices{texts: l.texts}).next(t)
		}
		w, err := New(usual(c))
		if err != nil {
			t.Fatalf("after %d: %v", l.after, err)
		}
		t.Cleanup(w.Close)
		end := make(chan error, 1)
		ends[c.Worker.Peer] = end
		go func() { end <- errors.Join(w.Run(ctx, ctx), w.Saved()) }()
	}
	place := map[plan.PeerID]plan.WorkerID{}
	var by plan.PeerID
	for _, id := range l.plan.Workers() {
		place[id.Peer], logs[id.Peer] = id, replay.NewLog(id.Peer, 0, 1<<30)
		if by == "" && id.Peer != l.lost {
			by = id.Peer
		}
	}
	for _, id := range l.plan.Workers() {
		end, c := endOf{net: net, self: id.Peer, mu: &mu}, Config{Worker: id, Plan: l.plan, Keeper: from{r.states, 0}}
		if id.Peer == l.lost {
			end.left = &left
		}
		if id.Peer == by {
			c.Commits = commits
		}
		c.Exchange = logs[id.Peer].Keep(end)
		begin(c)
	}
	err := <-ends[l.lost]
	if errors.Is(err, errDead) {
		p, failed := commits.From(r.states.newestWhole(l.run.Model.Layers()), l.plan)
		if failed != nil {
			t.Fatalf("after %d: %v", l.after, failed)
		}
		r.lived, r.began, r.done = false, p.Start, commits.newest()
		net.forget(l.lost, r.began)
		for peer, log := range logs {
			frames, kept := log.After(r.began, l.lost)
			if !kept {
				t.Fatalf("%s keeps nothing after step %d", peer, r.began)
			}
			for _, f := range frames {
				net.put(address{peer, l.lost, f.Tag}, f.Payload)
			}
		}
		substitute := Config{Worker: place[l.lost], Plan: p, Exchange: sinceDone{endOf{net: net, self: l.lost, mu: &mu}, r.done}, Keeper: from{r.states, r.began}}
		if newest, _ := net.newest(by); l.lost == l.plan.Coordinator().Peer && newest.Step > r.began {
			made, err := commits.UpTo(newest.Step-1, p)
			if err != nil {
				t.Fatalf("after %d: %v", l.after, err)
			}
			substitute.Made, substitute.Commits = append(made, newest), commits
		}
		begin(substitute)
		err = <-ends[l.lost]
	}
	for peer, end := range ends {
		if peer != l.lost {
			err = errors.Join(err, <-end)
		}
	}
	if err != nil {
		t.Fatalf("after %d: %v", l.after, err)
	}
	return r
}

// TestASubstituteCatchesUpWithTheSameBits: without a replica the newest checkpoint, what the others sent since and the commits are
// enough, also where commits have named other schedules before it and since.
func TestASubstituteCatchesUpWithTheSameBits(t *testing.T) {
	run := testRun()
	run.Train.Steps, run.Train.CheckpointEvery, run.Train.HeldOutEvery, run.Model.ResidualDropout = 6, 3, 2, 0.25
	line, uneven := cut(run, "1f1b", []int{0, 2, 3}), cut(run, "1f1b", []int{0, 1, 3}, []int{0, 2})
	coded := cut(run, "1f1b", []int{0, 2, 3})
	for s := range coded.Replicas[0].Stages {
		coded.Replicas[0].Stages[s].Codec = "int8"
	}
	for name, c := range map[string]struct {
		plan  plan.Plan
		texts []string
		lost  plan.PeerID
	}{
		"in f32":           {line, nil, "peer-0-0"},
		"in int8":          {coded, nil, "peer-0-1"},
		"other schedules":  {line, []string{"1f1b 1,1,0", "zb-h1", "gpipe 3,2,0", "seq1f1b", "1f1b 3,1,0"}, "peer-0-1"},
		"replicas unlike":  {uneven, nil, "peer-1-0"},
		"the coordinator":  {line, nil, line.Coordinator().Peer},
		"of two replicas":  {uneven, []string{"zb-h1 1+3", "1f1b 1,1,0 1,0 3+1", "zb-h1 3+1"}, uneven.Coordinator().Peer},
		"and other shares": {uneven, []string{"zb-h1 1+3", "1f1b 1,1,0 1,0 3+1", "zb-h1 3+1"}, "peer-1-1"},
	} {
		t.Run(name, func(t *testing.T) {
			saved := &memoryKeeper{}
			want := train(t, run, c.plan, saved)
			every := 9
			if testing.Short() {
				every = 17
			}
			most, later := plan.Step(0), false
			for after, lived := 0, false; !lived; after += every {
				got := lateLoss{run, c.plan, c.texts, c.lost, after}.train(t)
				equal(t, fmt.Sprintf("after %d", after), got.result, want)
				equalStates(t, fmt.Sprintf("after %d", after), got.states, saved)
				most, later, lived = max(most, got.done-got.began), later || got.began > 0, got.lived
			}
			if most < 2 || !later {
				t.Errorf("at most %d steps were computed again, from a checkpoint of the run: %t", most, later)
			}
		})
	}
}
