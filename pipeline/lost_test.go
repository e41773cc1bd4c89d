package pipeline

import (
	"context"
	"errors"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"pnode/kernels/cpu"
	"pnode/pipeline/collective"
	"pnode/pipeline/replay"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// address says whose message it is, and for whom.
type address struct {
	from, to plan.PeerID
	tag      wire.Tag
}

// keepingNet is a network whose messages come out once, as those of a session do, however often they are sent.
type keepingNet struct {
	mu      sync.Mutex // guards the rest
	held    map[address][]byte
	seen    map[address]bool
	commits map[plan.Step]wire.Commit // that came anywhere; the one after the last update is of the step after that
	came    map[plan.PeerID]plan.Step // of the newest commit that came to a peer
	changed chan struct{}
}

func newKeepingNet() *keepingNet {
	return &keepingNet{held: map[address][]byte{}, seen: map[address]bool{}, commits: map[plan.Step]wire.Commit{}, came: map[plan.PeerID]plan.Step{}, changed: make(chan struct{})}
}

func (n *keepingNet) put(a address, payload []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.seen[a] {
		return
	}
	n.seen[a], n.held[a] = true, payload
	if c, err := wire.DecodeCommit(payload); a.tag.Kind == wire.KindCommit && err == nil {
		n.commits[a.tag.Step] = c
		n.came[a.to] = max(n.came[a.to], c.Step)
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

// newest returns the step of the newest commit that came anywhere.
func (n *keepingNet) newest() (newest plan.Step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for step := range n.commits {
		newest = max(newest, step)
	}
	return newest
}

// commit returns the commit of a step.
func (n *keepingNet) commit(step plan.Step) (wire.Commit, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c, ok := n.commits[step]; ok {
		return c, nil
	}
	return wire.Commit{}, errors.New("it came to nobody")
}

// cameTo returns the step of the newest commit that came to a peer.
func (n *keepingNet) cameTo(peer plan.PeerID) plan.Step {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.came[peer]
}

// forget has what a lost peer got in the steps after one come again. What it had sent to itself is lost.
func (n *keepingNet) forget(to plan.PeerID, after plan.Step) {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.held, func(a address, _ []byte) bool { return a.from == to && a.to == to })
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

// loss is a run in which a peer is lost after its workers have done some things.
type loss struct {
	run  plan.RunSpec
	plan plan.Plan
	lost plan.PeerID
	// by goes on in its place from the state in its memory; empty: another peer does from the newest checkpoint.
	by    plan.PeerID
	after int
	// decide, if not nil, makes the coordinator's choices, and those of its substitute.
	decide func(c *Config, substitute bool)
}

// outcome holds what the run comes to. A substitute from a checkpoint began after one step, and its node had made another one then.
type outcome struct {
	result      result
	states      *memoryKeeper
	lived       bool // the peer did all that it had to
	began, done plan.Step
}

// lossRun carries out a loss.
type lossRun struct {
	*testing.T
	loss
	net     *keepingNet
	ctx     context.Context // of all workers
	cancel  context.CancelFunc
	life    context.Context // of the lost peer's
	die     context.CancelFunc
	logs    map[plan.PeerID]*replay.Log
	workers map[plan.WorkerID]*Worker
	loaded  map[plan.WorkerID]chan struct{}
	ends    map[plan.WorkerID]chan error
	commits *Commits // of the node that goes on

	mu        sync.Mutex // guards the rest
	left      int        // things that the lost peer may do
	out       outcome
	schedules map[plan.Step]string
}

// train carries the run out to its end.
func (l loss) train(t *testing.T) outcome {
	t.Helper()
	r := &lossRun{
		T: t, loss: l, net: newKeepingNet(), logs: map[plan.PeerID]*replay.Log{}, workers: map[plan.WorkerID]*Worker{},
		loaded: map[plan.WorkerID]chan struct{}{}, ends: map[plan.WorkerID]chan error{}, commits: &Commits{}, left: l.after,
		out: outcome{result: newResult(), states: &memoryKeeper{}}, schedules: map[plan.Step]string{},
	}
	r.ctx, r.cancel = context.WithCancel(t.Context())
	defer r.cancel()
	r.life, r.die = context.WithCancel(r.ctx)
	defer r.die()
	for _, id := range l.plan.Workers() {
		if r.logs[id.Peer] == nil {
			r.logs[id.Peer] = replay.NewLogs(id.Peer).Begin(1, 0, 1<<30)
		}
		end := endOf{net: r.net, self: id.Peer, mu: &r.mu}
		if id.Peer == l.lost {
			end.left = &r.left
		}
		c := Config{Worker: id, Plan: l.plan, Keeper: from{r.out.states, 0}, Exchange: r.logs[id.Peer].Keep(end)}
		if id.Peer == r.heir() {
			c.Commits = r.commits
		}
		r.add(c, false)
	}
	for _, id := range l.plan.Workers() {
		ctx := r.ctx
		if id.Peer == l.lost {
			ctx = r.life
		}
		r.begin(ctx, id)
	}
	if r.out.lived = !r.dies(); !r.out.lived {
		r.replace()
	}
	for id, end := range r.ends {
		if err := <-end; err != nil {
			t.Fatalf("after %d: %s of %s: %v", l.after, id.Device, id.Peer, err)
		}
	}
	return r.out
}

// heir returns who goes on in the lost peer's place.
func (r *lossRun) heir() plan.PeerID {
	if r.by != "" {
		return r.by
	}
	return slices.DeleteFunc(r.plan.Peers(), func(p plan.PeerID) bool { return p == r.lost })[0]
}

// add makes a worker, which replaces the one of the same place.
func (r *lossRun) add(c Config, substitute bool) {
	r.Helper()
	device, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { device.Close() })
	there, loaded := make(chan struct{}), c.OnLoaded
	c.Run, c.Device, c.OnStep, c.OnLoaded = r.run, device, r.step, func() {
		if loaded != nil {
			loaded()
		}
		close(there)
	}
	if r.decide != nil {
		r.decide(&c, substitute)
	}
	w, err := New(usual(c))
	if err != nil {
		r.Fatalf("after %d: %v", r.after, err)
	}
	r.Cleanup(w.Close)
	r.workers[c.Worker], r.loaded[c.Worker], r.ends[c.Worker] = w, there, make(chan error, 1)
}

// begin runs a worker. All others end where it fails for another reason than its death.
func (r *lossRun) begin(ctx context.Context, id plan.WorkerID) {
	w, end := r.workers[id], r.ends[id]
	go func() {
		err := errors.Join(w.Run(ctx, ctx), w.Saved())
		switch {
		case errors.Is(err, errDead):
			r.die()
		case err != nil && ctx.Err() == nil:
			r.cancel()
		}
		end <- err
	}()
}

// step takes in a step of a worker: the same one on all of them.
func (r *lossRun) step(s StepResult) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if on := s.Schedule.String(); !s.Final {
		agree(r.T, r.out.result.losses, s.Step, false, s.Loss)
		if was := r.schedules[s.Step]; was != "" && was != on {
			r.Errorf("after %d: step %d runs as %s and as %s", r.after, s.Step, was, on)
		}
		r.schedules[s.Step] = on
	}
	r.out.result.evaluated(r.T, s)
}

// parts returns the lost peer's workers.
func (r *lossRun) parts() []plan.WorkerID {
	return slices.DeleteFunc(r.plan.Workers(), func(id plan.WorkerID) bool { return id.Peer != r.lost })
}

// dies reports whether the lost peer died, once its workers have ended.
func (r *lossRun) dies() (died bool) {
	r.Helper()
	for _, id := range r.parts() {
		err := <-r.ends[id]
		died = died || errors.Is(err, errDead)
		if err != nil && r.life.Err() == nil {
			r.Fatalf("after %d: %s: %v", r.after, id.Device, err)
		}
		r.ends[id] <- err
	}
	return died
}

// replace has other workers go on in the lost peer's place.
func (r *lossRun) replace() {
	r.Helper()
	since := r.checkpoint
	if r.by != "" {
		since = r.memory
	}
	start, c, loaded := since()
	r.net.forget(r.lost, start)
	for peer, log := range r.logs {
		frames, kept := log.After(start, r.lost)
		if !kept {
			r.Fatalf("%s keeps nothing after step %d", peer, start)
		}
		for _, f := range frames {
			r.net.put(address{peer, r.lost, f.Tag}, f.Payload)
		}
	}
	for _, id := range r.parts() {
		c := c
		if c.Worker, c.OnLoaded = id, loaded; id == r.plan.Coordinator() {
			r.repeat(&c)
		}
		r.add(c, true)
	}
	for _, id := range r.parts() {
		r.begin(r.ctx, id)
	}
}

// repeat has the substitute of a lost coordinator repeat what that one had committed.
func (r *lossRun) repeat(c *Config) {
	r.Helper()
	step := r.net.newest()
	newest, _ := r.net.commit(step) // none where there is none
	taken, made, err := r.commits.Repeated(step, newest, c.Plan, r.net.commit)
	if err != nil {
		r.Fatalf("after %d: %v", r.after, err)
	}
	if taken.Step > 0 {
		c.Taken = taken
	}
	c.Committed, c.Commits = made, r.commits
}

// memory returns how substitutes go on from the state in another peer's memory, after which step, and what each calls once it has loaded.
func (r *lossRun) memory() (plan.Step, Config, func()) {
	r.Helper()
	var donors []*Worker
	for _, id := range r.parts() {
		donor := r.plan.Donor(id, r.by)
		<-r.loaded[donor]
		if w := r.workers[donor]; !slices.Contains(donors, w) {
			donors = append(donors, w)
		}
	}
	came := r.net.cameTo(r.by)
	held, err := Hold(r.ctx, donors...)
	for err == nil && r.after%4 < 2 && held.Step() < came { // else most often before that is applied
		held.Release()
		runtime.Gosched()
		held, err = Hold(r.ctx, donors...)
	}
	if err != nil {
		r.Fatalf("after %d: %v", r.after, err)
	}
	context.AfterFunc(r.ctx, held.Release)
	var loading atomic.Int32
	loading.Store(int32(len(r.parts())))
	loaded := func() {
		if loading.Add(-1) == 0 {
			held.Release()
		}
	}
	return held.Step(), Config{
		Plan: held.Plan(), Taken: held.Taken(), Unmeasured: held.Unmeasured(), Keeper: loadsFrom{held, r.out.states},
		Exchange: endOf{net: r.net, self: r.lost, mu: &r.mu},
	}, loaded
}

// checkpoint is memory for substitutes that go on from the newest checkpoint.
func (r *lossRun) checkpoint() (plan.Step, Config, func()) {
	r.Helper()
	p, err := r.commits.From(r.out.states.newestWhole(r.run.Model.Layers()), r.plan)
	if err != nil {
		r.Fatalf("after %d: %v", r.after, err)
	}
	r.out.began, r.out.done = p.Start, r.commits.newest()
	return p.Start, Config{
		Plan: p, Keeper: from{r.out.states, p.Start}, SecondTry: r.commits.SecondTry(p, p.Start),
		Exchange: sinceDone{endOf{net: r.net, self: r.lost, mu: &r.mu}, r.out.done},
	}, func() {}
}

// loadsFrom loads from a Held and saves elsewhere.
type loadsFrom struct {
	*Held
	saves *memoryKeeper
}

func (l loadsFrom) Save(ctx context.Context, s State) error { return l.saves.Save(ctx, s) }
