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
	"pnode/pipeline/collective"
	"pnode/pipeline/replay"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// keepingNet is a network whose messages come out once, as those of a session do, however often they are sent.
type keepingNet struct {
	mu      sync.Mutex // guards the rest
	held    map[address][]byte
	seen    map[address]bool
	changed chan struct{}
}

func newKeepingNet() *keepingNet {
	return &keepingNet{held: map[address][]byte{}, seen: map[address]bool{}, changed: make(chan struct{})}
}

func (n *keepingNet) put(a address, payload []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen[a] {
		return
	}
	n.seen[a], n.held[a] = true, payload
	close(n.changed)
	n.changed = make(chan struct{})
}

func (n *keepingNet) take(ctx context.Context, a address) ([]byte, error) {
	for {
		n.mu.Lock()
		payload, ok := n.held[a]
		delete(n.held, a)
		changed := n.changed
		n.mu.Unlock()
		if ok {
			return payload, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// forget has what a peer got in the steps after one come again.
func (n *keepingNet) forget(to plan.PeerID, after plan.Step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.seen, func(a address, _ bool) bool { return a.to == to && a.tag.Step > after })
}

// endOf is a peer's end of it, which does as many things as are left and then no more.
type endOf struct {
	net  *keepingNet
	self plan.PeerID
	mu   *sync.Mutex // guards left
	left *int        // nil: it lives for ever
}

func (m endOf) live() error {
	if m.left == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if *m.left == 0 {
		return errDead
	}
	*m.left--
	return nil
}

func (m endOf) Send(_ context.Context, to plan.PeerID, f wire.Frame) error {
	err := m.live()
	if err == nil {
		m.net.put(address{m.self, to, f.Tag}, f.Payload)
	}
	return err
}

func (m endOf) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	if err := m.live(); err != nil {
		return nil, err
	}
	return m.net.take(ctx, address{from, m.self, tag})
}

// substituted trains with a plan of two replicas, and has a peer's worker go on from another's state after it has
// done some things. It returns what the run is and whether the worker died.
func substituted(t *testing.T, run plan.RunSpec, p plan.Plan, lost, by plan.PeerID, after int) (result, *memoryKeeper, bool) {
	t.Helper()
	net, states, out := newKeepingNet(), &memoryKeeper{}, newResult()
	var mu sync.Mutex // guards out and left
	left, logs, workers := after, map[plan.PeerID]*replay.Log{}, map[plan.PeerID]*Worker{}
	onStep := func(r StepResult) {
		mu.Lock()
		defer mu.Unlock()
		if !r.Final {
			agree(t, out.losses, r.Step, false, r.Loss)
		}
		out.evaluated(t, r)
	}
	worker := func(id plan.WorkerID, p plan.Plan, exchange collective.Exchange, keeper Keeper) *Worker {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { device.Close() })
		w, err := New(usual(Config{Worker: id, Run: run, Plan: p, Device: device, Exchange: exchange, Keeper: keeper, OnStep: onStep}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Close)
		return w
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ends, loaded, died := map[plan.PeerID]chan error{}, map[plan.PeerID]chan struct{}{}, false
	begin := func(w *Worker, peer plan.PeerID) {
		end := ends[peer]
		go func() { end <- errors.Join(w.Run(ctx, ctx), w.Saved()) }()
	}
	for _, id := range p.Workers() {
		logs[id.Peer], ends[id.Peer] = replay.NewLog(id.Peer, 0, 1<<30), make(chan error, 1)
		end := endOf{net: net, self: id.Peer, mu: &mu}
		if id.Peer == lost {
			end.left = &left
		}
		workers[id.Peer] = worker(id, p, logs[id.Peer].Keep(end), from{states, 0})
		there := make(chan struct{})
		workers[id.Peer].cfg.OnLoaded, loaded[id.Peer] = func() { close(there) }, there
	}
	for _, id := range p.Workers() {
		begin(workers[id.Peer], id.Peer)
	}
	order := append([]plan.PeerID{lost}, p.Peers()...)
	for i, peer := range order {
		if i > 0 && peer == lost {
			continue
		}
		err := <-ends[peer]
		if errors.Is(err, errDead) {
			<-loaded[by]
			died = true
			held, failed := workers[by].Hold()
			if failed != nil {
				t.Fatalf("after %d: %v", after, failed)
			}
			net.forget(lost, held.Step())
			for peer, log := range logs {
				frames, kept := log.After(held.Step(), lost)
				if !kept {
					t.Fatalf("%s keeps nothing after step %d", peer, held.Step())
				}
				for _, f := range frames {
					net.put(address{peer, lost, f.Tag}, f.Payload)
				}
			}
			id := workers[lost].worker
			w := worker(id, held.Plan(), endOf{net: net, self: lost, mu: &mu}, loadsFrom{held, states})
			w.cfg.OnLoaded, w.cfg.Taken = held.Release, held.Taken()
			begin(w, lost)
			err = <-ends[lost]
		}
		if err != nil {
			t.Fatalf("after %d: %s: %v", after, peer, err)
		}
	}
	return out, states, died
}

// loadsFrom loads from a Held and saves elsewhere.
type loadsFrom struct {
	*Held
	saves *memoryKeeper
}

func (l loadsFrom) Save(ctx context.Context, s State) error { return l.saves.Save(ctx, s) }

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
		for _, c := range []struct{ lost, by plan.PeerID }{{"peer-0-0", "peer-1-0"}, {"peer-1-0", "peer-0-0"}, {"peer-1-1", "peer-0-1"}} {
			if !slices.Contains(p.Substitutes(c.lost), c.by) {
				continue
			}
			t.Run(fmt.Sprintf("%s, %s", name, c.lost), func(t *testing.T) {
				every := 3
				if testing.Short() {
					every = 7
				}
				for after, died := 0, true; died; after += every {
					got, states, dead := substituted(t, run, p, c.lost, c.by, after)
					equal(t, fmt.Sprintf("after %d", after), got, want)
					equalStates(t, fmt.Sprintf("after %d", after), states, saved)
					if died = dead; !dead && after < 20 {
						t.Errorf("a worker does %d things in all", after)
					}
				}
			})
		}
	}
}
