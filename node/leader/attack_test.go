package leader

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
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

func (l *appliedLog) Leader() (plan.PeerID, plan.Term, bool)    { return l.self, 1, true }
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
	if ctx.Err() != nil {
		return nil // another plan took over
	}
	return errors.Join(err, w.Saved())
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

func (s saver) Load(_ context.Context, layer int, dst io.Writer) error {
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
		n := (len(f.Payload) - wire.TensorBytes(wire.F32, 0)) / 4
		xs := make([]float32, n)
		if _, err := wire.DecodeTensor(xs, f.Payload); err != nil {
			return f, true
		}
		for i := range xs {
			xs[i] = change(xs[i])
		}
		f.Payload, _ = wire.AppendTensor(nil, wire.F32, xs, wire.Noise(0))
		return f, true
	}
}

// nothing sends nothing, as a mute member does.
func nothing(f wire.Frame) (wire.Frame, bool) { return f, false }

// TestAttacksAreBlamed: what a patched member sends ends the generation, the others say whose fault it was, the log
// names it, and the run goes on without it, with finite losses.
func TestAttacksAreBlamed(t *testing.T) {
	nan := float32(math.NaN())
	for _, c := range []struct {
		name        string
		coordinates bool // the liar has the last stage, else the first
		kind        plan.FaultKind
		change      func(wire.Frame) (wire.Frame, bool)
	}{
		{"NaN activations", false, plan.BadTensor, tensor(func(float32) float32 { return nan })},
		{"NaN gradients", true, plan.BadTensor, tensor(func(float32) float32 { return nan })},
		{"half a tensor", false, plan.BadFrame, func(f wire.Frame) (wire.Frame, bool) {
			if f.Tag.Kind == wire.Activation {
				f.Payload = f.Payload[:len(f.Payload)/2]
			}
			return f, true
		}},
		{"commit with GradScale NaN", true, plan.BadCommit, func(f wire.Frame) (wire.Frame, bool) {
			if f.Tag.Kind == wire.KindCommit {
				commit, err := wire.DecodeCommit(f.Payload)
				if err != nil {
					panic(err)
				}
				commit.GradScale = math.NaN()
				f.Payload = wire.AppendCommit(nil, commit)
			}
			return f, true
		}},
		{"mute, but alive", false, plan.NoProgress, nothing},
		{"mute, but alive, as the coordinator", true, plan.NoProgress, nothing},
		{"frames with a stale step", false, plan.NoProgress, func(f wire.Frame) (wire.Frame, bool) {
			f.Tag.Step -= 5
			return f, true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAttacked(t, attackedRun())
				a.from, a.change = 12, c.change
				a.strike(c.coordinates)
				state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && s.Checkpoint.Step >= 30 })
				a.wantBlamed(state, c.kind)
			})
		})
	}
}

// strike has the member with the first or the last stage of the first plan be the liar; the leader is in between.
func (a *attacked) strike(coordinates bool) {
	a.Helper()
	p, _, err := New(Config{}).Planner.Make(a.Context(), NextInput(a.log.State()))
	if err != nil || len(p.Replicas) != 1 || len(p.Replicas[0].Stages) != 3 {
		a.Fatalf("%v: want three stages of one replica: %+v", err, p.Replicas)
	}
	stages := p.Replicas[0].Stages
	a.liar = stages[0].Peer
	if coordinates {
		a.liar = stages[2].Peer
	}
	if a.liar == a.log.self {
		a.Fatalf("the leader has stage %v", stages)
	}
}

// wantBlamed wants the liar, and nobody else, to be blamed, and the run to have gone on.
func (a *attacked) wantBlamed(s consensus.State, kind plan.FaultKind) {
	a.Helper()
	for _, m := range s.Members {
		if (m.Blamed != nil) != (m.Peer == a.liar) || m.Blamed != nil && m.Blamed.Kind != kind {
			a.Errorf("%s: blamed for %+v; the liar is %s, its fault %q", m.Label, m.Blamed, a.liar.Short(), kind)
		}
	}
	if s.Plan.Places(a.liar) || a.after.IsZero() {
		a.Errorf("generation %d at step %d, with the liar: %t; rulings %+v", s.Plan.Generation, s.Checkpoint.Step, s.Plan.Places(a.liar), s.Blames)
	}
	if s.Plan.Generation > 3 {
		a.Errorf("%d generations", s.Plan.Generation)
	}
	for _, l := range a.steps {
		if math.IsNaN(l.Loss) || math.IsInf(l.Loss, 0) {
			a.Errorf("step %d has loss %v", l.Step, l.Loss)
		}
	}
	for _, b := range s.Blames {
		a.Logf("generation %d: %s", b.Generation, s.Told(b))
	}
	a.Logf("from the fault to its blame %v, to the next committed step %v", a.blamed.Sub(a.struck).Round(10*time.Millisecond), a.after.Sub(a.struck).Round(10*time.Millisecond))
}

// TestHeartbeatsAloneAreBlamed: a member that gets a part in the plan, and then only sends heartbeats, is left out.
func TestHeartbeatsAloneAreBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttacked(t, attackedRun())
		a.deaf = true
		a.strike(false)
		a.struck = time.Now()
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && s.Checkpoint.Step >= 10 })
		a.wantBlamed(state, plan.NoProgress)
	})
}

// TestFlippedSignsAreRolledBack: a member that turns gradients and activations around makes the loss jump. The run goes
// back to a checkpoint of before, though one is kept and one is made at every step, and goes on without the member that
// is trusted least.
func TestFlippedSignsAreRolledBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := attackedRun()
		run.Train.CheckpointEvery, run.Train.LR, run.Train.MinLR = 1, 1e-2, 1e-2
		a := newAttacked(t, run)
		const from = 45
		a.from, a.change = from, tensor(func(x float32) float32 { return -x })
		a.strike(true)
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && s.Checkpoint.Step >= 70 })
		a.wantBlamed(state, plan.LossJump)
		if back := state.Blames[0].Back; back == 0 || back > from {
			t.Errorf("back to step %d, the attack began at step %d", back, from)
		}
		first, last := map[plan.Step]float64{}, a.steps[len(a.steps)-1]
		for _, l := range a.steps {
			if l.Generation == 1 {
				first[l.Step] = l.Loss
			} else if l.Step <= from && l.Loss != first[l.Step] {
				t.Errorf("step %d has loss %v, %v when it was done again", l.Step, first[l.Step], l.Loss)
			}
		}
		if last.Loss > first[from] {
			t.Errorf("the loss was %v before the attack and is %v at step %d", first[from], last.Loss, last.Step)
		}
	})
}

// TestASpoiltCheckpointIsGivenUp: a member saves what is not finite, and later sends that too. The others find it when
// they load it, and go back to the checkpoint before.
func TestASpoiltCheckpointIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := attackedRun()
		run.Train.KeepCheckpoints = 3
		a := newAttacked(t, run)
		a.from, a.change = 12, tensor(func(float32) float32 { return float32(math.NaN()) })
		a.spoils = func(step plan.Step, state []byte) []byte {
			if step == 10 {
				copy(state, wire.AppendF32(nil, []float32{float32(math.NaN())}))
			}
			return state
		}
		a.strike(true)
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && s.Checkpoint.Step >= 30 })
		for _, b := range state.Blames {
			t.Logf("generation %d: %s; back to %d", b.Generation, state.Told(b), b.Back)
		}
		if len(state.Blames) != 3 || state.Blames[0].Peer != a.liar || state.Blames[1].Back != 0 || state.Blames[2].Back != 5 || state.Blames[2].Until != 0 {
			t.Errorf("rulings %+v", state.Blames)
		}
		if state.Plan.Places(a.liar) || state.Plan.Start != 5 {
			t.Errorf("generation %d starts from step %d, with the liar: %t", state.Plan.Generation, state.Plan.Start, state.Plan.Places(a.liar))
		}
	})
}

// TestDivergenceStopsTheRun: a learning rate that no model survives makes results that are not finite, on one worker
// and then on another. That is nobody's fault: the run stops and says so, with a checkpoint that is finite.
func TestDivergenceStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := attackedRun()
		run.Train.LR, run.Train.MinLR, run.Train.ClipNorm = 1e25, 1e25, 0
		a := newAttacked(t, run)
		state := a.train(func(s consensus.State) bool { return s.StopWanted })
		b, diverged := state.Diverged()
		for _, b := range state.Blames {
			t.Logf("generation %d: %s", b.Generation, state.Told(b))
			if b.Peer != b.Accuser {
				t.Errorf("%s is blamed", b.Peer)
			}
		}
		if !diverged || b.Step > 10 {
			t.Errorf("diverged: %t, rulings %+v", diverged, state.Blames)
		}
	})
}

// TestFalseAccusations: a member that gives generations up with lies about the others loses its own place with
// further lies, and the first victim comes back.
func TestFalseAccusations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttacked(t, attackedRun())
		a.strike(true)
		victim := plan.PeerID("")
		a.lie = func(p plan.Plan) *plan.Fault {
			for _, m := range a.members {
				if m.peer != a.liar && m.peer != a.log.self && victim == "" {
					victim = m.peer
				}
			}
			accused := victim
			if !p.Places(victim) {
				accused = a.log.self
			}
			return &plan.Fault{Accused: accused, Kind: plan.BadTensor, Step: 3, Detail: "a lie"}
		}
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 3 && s.Checkpoint.Step >= 40 })
		for _, b := range state.Blames {
			t.Logf("generation %d, %s: %s", b.Generation, state.NameOf(b.Peer), state.Told(b))
		}
		liar, _ := state.Member(a.liar)
		other, _ := state.Member(victim)
		if liar.Blamed == nil || liar.Blamed.Kind != plan.FalseWord || other.Blamed != nil || state.Plan.Places(a.liar) {
			t.Errorf("the liar is blamed for %+v, its victim for %+v", liar.Blamed, other.Blamed)
		}
	})
}

// TestAHugeStepHoldsNoPauseUp: a coordinator says that it has done the run's last step. A member leaves: the others wait
// for the save of that step, and go on from the newest checkpoint once that has taken too long.
func TestAHugeStepHoldsNoPauseUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAttacked(t, attackedRun())
		a.strike(true)
		a.boast = func(b *gossip.Heartbeat) { b.Step = a.run.Train.Steps }
		leaver := a.log.State().Members[0].Peer
		if leaver == a.liar || leaver == a.log.self {
			leaver = a.log.State().Members[2].Peer
		}
		var asked time.Time
		state := a.train(func(s consensus.State) bool {
			if s.Checkpoint.Step >= 10 && asked.IsZero() {
				asked = time.Now()
				if err := a.log.by(leaver, consensus.SetMemberState{Peer: leaver, ProcessEpoch: 1, State: consensus.Draining, Reason: "leaving"}); err != nil {
					t.Error(err)
				}
			}
			return s.Plan.Generation > 1
		})
		waited := time.Since(asked)
		if asked.IsZero() || state.Plan.Generation < 2 || state.Plan.Places(leaver) || state.Plan.Start < 10 || waited > 2*leastSavePatience {
			t.Errorf("generation %d from step %d after %v, with the leaver: %t", state.Plan.Generation, state.Plan.Start, waited, state.Plan.Places(leaver))
		}
		t.Logf("generation %d from step %d after %v: %q", state.Plan.Generation, state.Plan.Start, waited, state.Reasons)
	})
}

// TestGivingUpAloneIsBlamed: a member says in each generation that it gives up, and no more. It is left out.
func TestGivingUpAloneIsBlamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := attackedRun()
		run.Train.Steps = 400
		a := newAttacked(t, run)
		a.strike(true)
		a.boast = func(b *gossip.Heartbeat) { b.Stalled, b.Lacks, b.Reason = b.Generation, true, "a lie" }
		state := a.train(func(s consensus.State) bool { return s.Plan.Generation > 1 && !s.Plan.Places(a.liar) })
		liar, _ := state.Member(a.liar)
		if liar.Blamed == nil || liar.Blamed.Kind != plan.LostLink || state.Plan.Places(a.liar) || len(state.Blames) != 1 {
			t.Errorf("generation %d: rulings %+v", state.Plan.Generation, state.Blames)
		}
		t.Logf("generation %d: %s", state.Plan.Generation, state.Told(state.Blames[0]))
	})
}

// TestStartedAgainAndAgain: a member whose process is started every 15 s makes everything be planned anew, and is soon
// left out. One that comes back twice is not.
func TestStartedAgainAndAgain(t *testing.T) {
	for _, c := range []struct {
		starts uint64
		out    bool
	}{{2, false}, {4, true}} {
		t.Run(fmt.Sprint(c.starts, " times"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newAttacked(t, attackedRun())
				a.strike(true)
				epoch, at := uint64(1), time.Now()
				state := a.train(func(s consensus.State) bool {
					m, _ := s.Member(a.liar)
					if time.Since(at) > 15*time.Second && epoch <= c.starts {
						epoch, at = epoch+1, time.Now()
						join := consensus.Join{Peer: a.liar, ProcessEpoch: epoch, Label: m.Label, Profile: m.Profile}
						active := consensus.SetMemberState{Peer: a.liar, ProcessEpoch: epoch, State: consensus.Active}
						if err := errors.Join(a.log.by(a.liar, join), a.log.by(a.liar, active)); err != nil {
							t.Error(err)
						}
					}
					return epoch > c.starts && time.Since(at) > 10*time.Second
				})
				liar, _ := state.Member(a.liar)
				if out := liar.Blamed != nil; out != c.out || state.Plan.Places(a.liar) == c.out {
					t.Errorf("left out %t, placed %t; rulings %+v", out, state.Plan.Places(a.liar), state.Blames)
				}
			})
		})
	}
}
