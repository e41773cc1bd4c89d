package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"runtime"
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
	commit  wire.Commit               // the newest one that came anywhere
	taken   map[plan.PeerID]plan.Step // by whom it came to
	changed chan struct{}
}

func newKeepingNet() *keepingNet {
	return &keepingNet{held: map[address][]byte{}, seen: map[address]bool{}, taken: map[plan.PeerID]plan.Step{}, changed: make(chan struct{})}
}

func (n *keepingNet) put(a address, payload []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen[a] {
		return
	}
	n.seen[a], n.held[a] = true, payload
	if c, err := wire.DecodeCommit(payload); a.tag.Kind == wire.KindCommit && err == nil && c.Step > 0 {
		n.commit, n.taken[a.to] = c, c.Step
	}
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

// newest returns the newest commit that came anywhere, and of which step one came to a peer.
func (n *keepingNet) newest(to plan.PeerID) (wire.Commit, plan.Step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.commit, n.taken[to]
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

// loss is a worker's loss after it has done some things. decide, if not nil, makes the coordinator's choices, and those of its
// substitute.
type loss struct {
	run      plan.RunSpec
	plan     plan.Plan
	lost, by plan.PeerID
	after    int
	decide   func(c *Config, substitute bool)
}

// substituted trains with a plan of two replicas, and has a lost peer's worker go on from another's state. It returns what the run is
// and whether the worker died.
func substituted(t *testing.T, l loss) (result, *memoryKeeper, bool) {
	t.Helper()
	run, p, lost, by, after := l.run, l.plan, l.lost, l.by, l.after
	net, states, out := newKeepingNet(), &memoryKeeper{}, newResult()
	var mu sync.Mutex // guards out and left
	left, logs, workers := after, map[plan.PeerID]*replay.Log{}, map[plan.PeerID]*Worker{}
	schedules := map[plan.Step]string{}
	onStep := func(r StepResult) {
		mu.Lock()
		defer mu.Unlock()
		if on := r.Schedule.String(); !r.Final {
			agree(t, out.losses, r.Step, false, r.Loss)
			if was := schedules[r.Step]; was != "" && was != on {
				t.Errorf("after %d: step %d runs as %s and as %s", after, r.Step, was, on)
			}
			schedules[r.Step] = on
		}
		out.evaluated(t, r)
	}
	worker := func(id plan.WorkerID, p plan.Plan, exchange collective.Exchange, keeper Keeper, substitute bool) *Worker {
		device, err := cpu.New(cpu.Options{Threads: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { device.Close() })
		config := usual(Config{Worker: id, Run: run, Plan: p, Device: device, Exchange: exchange, Keeper: keeper, OnStep: onStep})
		if held, ok := keeper.(loadsFrom); ok {
			config.Unmeasured = held.Unmeasured()
		}
		if l.decide != nil {
			l.decide(&config, substitute)
		}
		w, err := New(config)
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
		workers[id.Peer] = worker(id, p, logs[id.Peer].Keep(end), from{states, 0}, false)
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
			made, came := net.newest(by)
			held, failed := workers[by].Hold()
			for failed == nil && after%4 < 2 && held.Step() < came { // else most often before that is applied
				held.Release()
				runtime.Gosched()
				held, failed = workers[by].Hold()
			}
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
			w := worker(id, held.Plan(), endOf{net: net, self: lost, mu: &mu}, loadsFrom{held, states}, true)
			w.cfg.OnLoaded, w.cfg.Taken, w.cfg.Made = held.Release, held.Taken(), []wire.Commit{made}
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
					got, states, dead := substituted(t, loss{run: run, plan: p, lost: c.lost, by: c.by, after: after})
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
				var got result
				var states *memoryKeeper
				got, states, died = substituted(t, loss{run, c.plan, c.lost, c.by, after, decide})
				equal(t, fmt.Sprintf("after %d", after), got, want)
				for step, layers := range states.layers {
					if len(layers) != run.Model.Layers() {
						t.Errorf("after %d: of step %d %d layers are saved", after, step, len(layers))
					}
				}
				saved[len(states.layers[2]) > 0]++
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
}
