package leader

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/kernels/cpu"
	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/pipeline/collective"
	"pnode/pipeline/link"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// attacked is a run of three members over emulated links, in virtual time: real workers, links, leader, planner and
// rules of the log. One member's client is patched: what it sends from a step on is changed.
type attacked struct {
	*testing.T
	run     plan.RunSpec
	net     *link.Emulated
	log     *appliedLog
	beats   *gossip.Tracker
	members []*member
	liar    plan.PeerID
	from    plan.Step // of the attack
	// change is what the patched client sends in place of a frame; false is nothing.
	change func(wire.Frame) (wire.Frame, bool)
	// spoils returns what the patched client saves in place of a layer's state.
	spoils func(step plan.Step, state []byte) []byte
	// deaf: the patched client sends heartbeats, and does nothing else.
	deaf bool
	// boast changes the patched client's heartbeats.
	boast func(*gossip.Heartbeat)
	// lie is what the patched client says when it gives a plan up after its first steps.
	lie func(plan.Plan) *plan.Fault

	mu     sync.Mutex // guards what follows
	steps  []gossip.StepLoss
	struck time.Time // the first change
	blamed time.Time
	after  time.Time // the first step of a generation after that
}

// appliedLog is a log of one node, with the rules of the real one.
type appliedLog struct {
	mu    sync.Mutex // guards state
	state consensus.State
	self  plan.PeerID
}

func (l *appliedLog) State() consensus.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state
}

func (l *appliedLog) Leader() (plan.PeerID, plan.Term, bool) { return l.self, 1, true }

func (l *appliedLog) Answers(context.Context, plan.PeerID) bool { return true }

// Changed never says so: the leader looks twice a second anyway.
func (l *appliedLog) Changed() <-chan struct{} { return nil }

func (l *appliedLog) Propose(_ context.Context, e consensus.Entry) error { return l.by(l.self, e) }

func (l *appliedLog) by(peer plan.PeerID, e consensus.Entry) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := consensus.Authorize(l.state, consensus.Author{Peer: peer, Term: 1}, e); err != nil {
		return err
	}
	next, err := consensus.Apply(l.state, e)
	if err == nil {
		l.state = next
	}
	return err
}

// member follows the log and carries its part of the plans out, as a node does.
type member struct {
	*attacked
	peer     plan.PeerID
	endpoint *link.Endpoint
	followed plan.Generation
	end      context.CancelFunc
	ended    chan error
	stalled  plan.Generation
	fault    *plan.Fault
	mu       sync.Mutex // guards step
	step     plan.Step
}

// attackedRun is a run of three stages whose losses fall within tens of steps.
func attackedRun() plan.RunSpec {
	run := rehearsedRun()
	run.Train.Steps, run.Train.Stages, run.Train.Micros, run.Train.MicroBatch = 80, 3, 4, 2
	run.Train.CheckpointEvery, run.Train.KeepCheckpoints, run.Train.MinNodes = 5, 1, 3
	return run
}

// newAttacked makes the run. The founder is the member of the middle stage; the liar has the last stage, and so the
// plan's coordinator, or the first.
func newAttacked(t *testing.T, run plan.RunSpec) *attacked {
	t.Helper()
	shape := link.LinkConditions{BytesPerS: 12_500_000, Delay: 5 * time.Millisecond}
	net, err := link.NewEmulated(link.EmulatedOptions{Peers: 3, Seed: 3, Conditions: shape})
	if err != nil {
		t.Fatal(err)
	}
	peers := net.Peers()
	a := &attacked{T: t, run: run, net: net, beats: gossip.NewTracker(), log: &appliedLog{self: peers[1]}}
	apply := func(e consensus.Entry) { // whoever may propose it
		t.Helper()
		if a.log.state, err = consensus.Apply(a.log.state, e); err != nil {
			t.Fatal(err)
		}
	}
	apply(consensus.SetRun{Spec: run, Owner: a.log.self})
	apply(consensus.Lead{Peer: a.log.self, Term: 1})
	for i, peer := range peers {
		p := plan.Profile{Devices: []plan.DeviceProfile{{Name: "cpu", Model: "any", MatMulFLOPS: 3e8, AttentionFLOPS: 3e8, MemoryBytesPerS: 25e8, MemoryFreeBytes: 1 << 30}}}
		for _, other := range peers {
			if other != peer {
				p.Links = append(p.Links, plan.LinkProfile{Peer: other, BytesPerS: shape.BytesPerS, RTTNanos: 2 * shape.Delay.Nanoseconds()})
			}
		}
		apply(consensus.Join{Peer: peer, ProcessEpoch: 1, Label: fmt.Sprintf("node-%d", i), Profile: p})
		apply(consensus.SetMemberState{Peer: peer, ProcessEpoch: 1, State: consensus.Active})
		a.members = append(a.members, &member{attacked: a, peer: peer, endpoint: link.NewEndpoint(net.Network(i), link.Options{})})
	}
	return a
}

// train runs everything until the state is as wanted, or for a long time.
func (a *attacked) train(until func(consensus.State) bool) consensus.State {
	a.Helper()
	l := New(Config{Self: a.log.self, Consensus: a.log, Peers: strangers{}, Heartbeats: a.beats, Log: slog.New(slog.DiscardHandler), Losses: a.losses})
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() { l.Run(ctx) })
	for _, m := range a.members {
		work.Go(func() {
			if err := m.endpoint.Run(ctx); err != nil {
				a.Error(err)
			}
		})
		work.Go(func() { m.follow(ctx) })
	}
	tick := time.NewTicker(50 * time.Millisecond)
	for begin := time.Now(); !until(a.log.State()) && time.Since(begin) < 10*time.Minute; {
		<-tick.C
		a.note()
	}
	tick.Stop()
	stop()
	work.Wait()
	a.net.Close()
	return a.log.State()
}

// note takes down when somebody was first left out.
func (a *attacked) note() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if m, _ := a.log.State().Member(a.liar); a.blamed.IsZero() && m.Blamed != nil {
		a.blamed = time.Now()
	}
}

func (a *attacked) losses(g plan.Generation, step plan.Step) (news []gossip.StepLoss) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, l := range a.steps {
		if l.Generation > g || l.Generation == g && l.Step > step {
			news = append(news, l)
		}
	}
	return news
}

// follow carries plans out until ctx ends, with a heartbeat every second.
func (m *member) follow(ctx context.Context) {
	tick := time.NewTicker(gossip.Every / 10)
	defer tick.Stop()
	defer m.stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case err := <-m.ended:
			m.end()
			m.ended = nil
			if err != nil {
				m.stalled, m.fault = m.followed, nil
				errors.As(err, &m.fault)
			}
		case <-tick.C:
			if i%10 == 0 {
				m.mu.Lock()
				b := gossip.Heartbeat{Peer: m.peer, Generation: m.followed, Step: m.step, Stalled: m.stalled, Fault: m.fault}
				m.mu.Unlock()
				if m.boast != nil && m.peer == m.liar {
					m.boast(&b)
				}
				m.beats.Note(b, time.Now())
			}
		}
		if m.lie != nil && m.peer == m.liar && m.ended != nil && m.newest() >= 3 {
			m.stop()
			m.stalled, m.fault = m.followed, m.lie(m.log.State().Plan)
		}
		if state := m.log.State(); state.Plan.Generation > m.followed && !(m.deaf && m.peer == m.liar) {
			m.stop()
			m.followed, m.stalled, m.fault = state.Plan.Generation, 0, nil
			if state.Plan.Places(m.peer) {
				m.start(ctx, state)
			}
		}
	}
}

// newest returns the member's newest step.
func (m *member) newest() plan.Step {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.step
}

// stop ends the generation that runs.
func (m *member) stop() {
	if m.ended != nil {
		m.end()
		<-m.ended
		m.ended = nil
	}
}

// start carries the state's plan out.
func (m *member) start(ctx context.Context, state consensus.State) {
	ctx, m.end = context.WithCancel(ctx)
	m.ended = make(chan error, 1)
	ended := m.ended
	go func() { ended <- m.generation(ctx, state) }()
}

func (m *member) generation(ctx context.Context, state consensus.State) error {
	p := state.Plan
	session := m.endpoint.Session(p.Generation, p.Peers())
	defer session.Close()
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		return err
	}
	defer device.Close()
	var exchange collective.Exchange = session
	if m.peer == m.liar {
		exchange = patched{session, m.attacked}
	}
	w, err := pipeline.New(pipeline.Config{
		Worker: plan.WorkerID{Peer: m.peer, Device: "cpu"}, Run: m.run, Plan: p, Device: device, Data: squares{m.run.Model.Context},
		Exchange: exchange, Keeper: saver{m, p}, Log: slog.New(slog.DiscardHandler), Stop: func() bool { return m.log.State().Paused() },
		OnLoaded: func() {}, OnStep: func(r pipeline.StepResult) { m.onStep(p, r) },
	})
	if err != nil {
		return err
	}
	defer w.Close()
	running, abort := context.WithCancel(ctx)
	defer abort()
	group, steps := errgroup.WithContext(running)
	group.Go(func() error { return w.Run(steps, ctx) })
	finished := make(chan error, 1)
	go func() { finished <- group.Wait() }()
	select {
	case err = <-finished:
	case peer := <-session.Lost():
		abort()
		var found *plan.Fault
		if err = <-finished; !errors.As(err, &found) {
			err = &plan.Fault{Accused: peer, Kind: plan.LostLink}
		}
	}
	err = errors.Join(err, w.Saved()) // before the worker is closed
	if ctx.Err() != nil {
		return nil // another plan took over
	}
	return err
}

func (m *member) onStep(p plan.Plan, r pipeline.StepResult) {
	m.mu.Lock()
	m.step = r.Step
	m.mu.Unlock()
	if r.Final || m.peer != p.Coordinator().Peer {
		return
	}
	a := m.attacked
	a.mu.Lock()
	defer a.mu.Unlock()
	a.steps = append(a.steps, gossip.StepLoss{Generation: p.Generation, Step: r.Step, Loss: r.Loss})
	if a.after.IsZero() && !a.blamed.IsZero() && !p.Places(a.liar) {
		a.after = time.Now()
	}
}

// patched changes what a member sends, from a step on.
type patched struct {
	collective.Exchange
	*attacked
}

func (p patched) Send(ctx context.Context, to plan.PeerID, f wire.Frame) error {
	if p.change == nil || f.Tag.Step < p.from {
		return p.Exchange.Send(ctx, to, f)
	}
	changed, ok := p.change(wire.Frame{Tag: f.Tag, Payload: slices.Clone(f.Payload)})
	p.attacked.mu.Lock()
	if p.struck.IsZero() && (!ok || changed.Tag != f.Tag || !slices.Equal(changed.Payload, f.Payload)) {
		p.struck = time.Now()
	}
	p.attacked.mu.Unlock()
	if !ok {
		return nil
	}
	return p.Exchange.Send(ctx, to, changed)
}

// saver keeps states in the memory of the test, and reports them to the log.
type saver struct {
	*member
	plan plan.Plan
}

var kept sync.Map // of states, by their hashes

func (s saver) Save(_ context.Context, saved pipeline.State) error {
	e := consensus.StageSaved{Step: saved.Step, Generation: s.plan.Generation, Last: saved.Last}
	for _, l := range saved.Layers {
		state, err := io.ReadAll(l)
		if err != nil {
			return err
		}
		h := plan.Hash(sha256.Sum256(state))
		if s.peer == s.liar && s.spoils != nil {
			state = s.spoils(saved.Step, state)
			h = sha256.Sum256(state)
		}
		kept.Store(h, state)
		e.Layers = append(e.Layers, consensus.LayerRef{Layer: l.Layer, SizeBytes: int64(len(state)), Chunks: []plan.Hash{h}, Holders: []plan.PeerID{s.peer}})
	}
	if err := s.log.by(s.peer, e); err != nil && !errors.Is(err, consensus.ErrStale) {
		return err
	}
	return nil
}

func (s saver) Load(_ context.Context, layer int, _ pipeline.Part, dst io.Writer) error {
	c := s.log.State().Checkpoint
	if c.Step != s.plan.Start {
		return fmt.Errorf("the checkpoint is of step %d, not %d", c.Step, s.plan.Start)
	}
	state, _ := kept.Load(c.Layers[layer].Chunks[0])
	_, err := dst.Write(state.([]byte))
	return err
}

// tensor changes the elements of activations and gradients in float32.
func tensor(change func(x float32) float32) func(wire.Frame) (wire.Frame, bool) {
	return func(f wire.Frame) (wire.Frame, bool) {
		if f.Tag.Kind != wire.Activation && f.Tag.Kind != wire.Gradient {
			return f, true
		}
		n := (len(f.Payload) - wire.TensorBytes(wire.F32, 0, 1)) / 4
		xs := make([]float32, n)
		if _, err := wire.DecodeTensor(xs, 1, f.Payload); err != nil {
			return f, true
		}
		for i := range xs {
			xs[i] = change(xs[i])
		}
		f.Payload, _ = wire.AppendTensor(nil, wire.F32, xs, 1, 0)
		return f, true
	}
}

// nothing sends nothing, as a mute member does.
func nothing(f wire.Frame) (wire.Frame, bool) { return f, false }
