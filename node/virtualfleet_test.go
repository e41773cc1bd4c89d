package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/gossip"
	"pnode/pipeline/collective"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/consensus"
	"pnode/swarm/virtual"
)

// fleetLine lies between any two nodes of a fleet.
var fleetLine = virtual.Line{Latency: 5 * time.Millisecond, BitsPerS: 20_000_000}

// fleetPort is where each of them listens.
const fleetPort = 4001

// fleet is a run of whole nodes in virtual time, in one bubble of testing/synctest: emulated devices, simulated sockets,
// and everything else as in a process. Its methods are called from the test's goroutine.
type fleet struct {
	*testing.T
	ctx     context.Context
	dir     string
	size    fleetSize
	net     *virtual.Net
	faults  *faults
	truth   *truth
	members []*member
	invite  chan string // the founder's
	recent  *recentLines
	tales   func(m *member, e api.Event)    // hears what a member tells; nil: nobody does
	says    func(m *member, message string) // hears what a member logs, and each step that it tells, while it waits; nil: nobody does

	uncopied *atomic.Bool                    // no holder makes copies
	barred   *atomic.Pointer[[2]plan.PeerID] // the one asks the other for copies in vain, and learns so at once

	restored plan.Step // of the newest checkpoint that was looked for
	moved    plan.Step // the newest step, and when it came
	movedAt  time.Time
	silent   map[*member]bool      // said nothing of why no step came, at the last look
	inner    map[*member]plan.Step // the newest inner steps of replicas here, at the last look
}

// fleetSize says what a fleet trains.
type fleetSize struct {
	Steps, Stages, Replicas, CheckpointEvery int
	MinNodes                                 int
	// Packets says that connections are those of QUIC, over simulated sockets; Circuits that members relay control messages for
	// each other, too.
	Packets, Circuits bool
	// Lines says that nodes know what their lines carry: measuring them fills the lines for a second each, and bytes are
	// what virtual time costs.
	Lines bool
	// Relay is what its nodes relay for each other.
	Relay config.RelayRate
	// Founders: nobody votes but the nodes of owners. RecoverAfter is of those that go on without a majority by themselves.
	Founders     bool
	RecoverAfter config.LostMajority
	// Parts: nobody keeps checkpoints whole.
	Parts bool
	// SlowDisk is how long it takes until the log knows that is stored what was in memory.
	SlowDisk time.Duration
	// Slow says that steps take 16 times as long.
	Slow bool
	// PostValidation has workers apply steps before their commit. ClipNorm is the limit of gradients; 0: the default. Jumps says that
	// the text has places where gradients are larger than before.
	PostValidation bool
	ClipNorm       float64
	Jumps          bool
	// Sync says when replicas come together.
	Sync plan.SyncRule
	// Slows says after how long the device of the last of MinNodes takes how many times as long, as emulated devices are told; empty: never.
	Slows string
	// Micros is how many micro-batches a step has; 0: 4. Blocks is how many the model has; 0: those of fleetModel.
	Micros, Blocks int
	// SampleEvery has the model write on the second node, every so many steps.
	SampleEvery int
	// Opened hears of each node before it begins; nil: nobody does.
	Opened func(*Node)
	// Lies returns what stands between a worker and its links; nil: nothing does.
	Lies func(n *Node, id plan.WorkerID, e collective.Exchange) collective.Exchange
}

// member is one machine of a fleet, with its folder and its address.
type member struct {
	*fleet
	number  int
	dir     string
	network *swarm.Simulated
	self    plan.PeerID  // once its first process has begun
	process *process     // the newest; nil before the first
	written atomic.Int64 // how long a write of the log takes, in ns
}

// process is a node from its start to its end.
type process struct {
	node  atomic.Pointer[Node] // nil until its parts are there
	end   context.CancelFunc
	ended chan struct{}
	err   error // once ended is closed
}

// faults holds what is wrong with the network. It may be used from any goroutine.
type faults struct {
	mu   sync.Mutex             // guards what follows
	down map[netip.Addr]bool    // no process runs there
	off  map[netip.Addr]bool    // nor says the machine so
	mute map[netip.Addr]bool    // nothing comes from there
	deaf map[netip.Addr]bool    // nothing gets there
	cut  map[[2]netip.Addr]bool // nothing gets from the one to the other
	late map[netip.Addr]time.Duration

	passed *atomic.Int64 // counts messages; nil for nobody who wants to know
}

// newFleet returns a fleet without members, whose nodes end with the test.
func newFleet(t *testing.T, size fleetSize, truth *truth) *fleet {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &fleet{
		T: t, ctx: ctx, dir: quickDir(t), size: size, net: virtual.New(fleetLine), truth: truth, invite: make(chan string, 1),
		faults: &faults{down: map[netip.Addr]bool{}, off: map[netip.Addr]bool{}}, uncopied: &atomic.Bool{}, barred: &atomic.Pointer[[2]plan.PeerID]{}, recent: &recentLines{},
	}
	f.faults.heal()
	f.net.Loses = func(from, to netip.Addr, _ []byte) bool { return f.faults.loses(from, to) }
	f.net.Delays = f.faults.delay
	f.net.Closed = f.faults.closed
	t.Cleanup(func() {
		cancel()
		for _, m := range f.members {
			if m.process != nil {
				m.kill()
			}
		}
		f.net.Close()
		if t.Failed() {
			t.Log("the nodes' last lines:\n" + strings.Join(f.recent.lines, "\n"))
		}
	})
	speed := "0.004GFLOP/s"
	if size.Slow {
		speed = "0.00025GFLOP/s"
	}
	if size.PostValidation { // which is to be worth it
		speed = "0.04GFLOP/s"
	}
	f.write("device.yaml", "device:\n  model: toy\n  matmul: "+speed+"\n  bandwidth: 1GB/s\n  memory: 100MB\n")
	if size.Slows != "" {
		f.write("slow.yaml", "device:\n  model: toy\n  matmul: "+speed+"\n  bandwidth: 1GB/s\n  memory: 100MB\n  slower: ["+size.Slows+"]\n")
	}
	text := strings.Repeat("The quick brown fox jumps over the lazy dog, and the dog sleeps on.\n", 100)
	if size.Jumps {
		for i := 1; i < 8; i++ {
			text = text[:i*800] + strings.Repeat("7", 100) + text[i*800+100:]
		}
	}
	f.write("text.txt", text)
	return f
}

// quickDir returns a folder where syncing takes no time, if this machine has one.
func quickDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "pnode-virtual-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func (f *fleet) write(name, text string) {
	f.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(text), 0o600); err != nil {
		f.Fatal(err)
	}
}

// add makes one more machine.
func (f *fleet) add() *member {
	host := f.net.Direct
	if f.size.Packets {
		host = f.net.Host
	}
	m := &member{fleet: f, number: len(f.members), network: host()}
	m.network.NATs = f.size.Circuits
	m.dir = filepath.Join(f.dir, m.name())
	if err := os.Mkdir(m.dir, 0o700); err != nil {
		f.Fatal(err)
	}
	f.members = append(f.members, m)
	return m
}

func (m *member) name() string { return fmt.Sprintf("node-%d", m.number) }

func (m *member) addr() netip.Addr { return virtual.Addr(m.number) }

// config returns the settings of a member's node.
func (m *member) config() config.Config {
	c := config.Default()
	c.Dir, c.Name, c.Notices, c.Threads = m.dir, m.name(), "off", 1
	c.Listen = netip.AddrPortFrom(m.addr(), fleetPort).String()
	c.Emulate = filepath.Join(m.fleet.dir, "device.yaml")
	if m.size.Slows != "" && m.number == m.size.MinNodes-1 {
		c.Emulate = filepath.Join(m.fleet.dir, "slow.yaml")
	}
	c.Data = []string{filepath.Join(m.fleet.dir, "text.txt")}
	c.Voters, c.SampleBytes, c.Context, c.MicroBatch, c.Micros = string(plan.VotersAny), 0, 16, 1, cmp.Or(m.size.Micros, 4)
	c.SumGroups = config.Count(c.Micros)
	c.Steps, c.HeldOutEvery, c.CheckpointEvery = m.size.Steps, m.size.Steps, config.Count(m.size.CheckpointEvery)
	c.Relay = m.size.Relay
	if m.size.PostValidation {
		c.PostValidation = "auto"
	}
	c.ClipNorm = cmp.Or(m.size.ClipNorm, c.ClipNorm)
	if m.size.Founders {
		c.Voters = string(plan.VotersOwners)
	}
	c.OnLostMajority = m.size.RecoverAfter
	if m.number == 1 && m.size.SampleEvery > 0 {
		c.SampleEvery, c.SamplePrompt = m.size.SampleEvery, samplePrompt
	}
	if m.size.Parts {
		c.KeepWhole = "off"
	}
	c.Stages, c.Replicas, c.MinNodes = config.Count(m.size.Stages), config.Count(m.size.Replicas), max(1, m.size.MinNodes)
	if m.size.Blocks > 0 {
		c.Stages = 0
	}
	return c
}

// samplePrompt begins the texts that a model writes.
const samplePrompt = "The quick"

// fleetModel is small enough for many nodes in one process, and has layers for some.
var fleetModel = model.Config{Vocab: 256, Context: 16, Blocks: 6, Heads: 2, Channels: 16}

// found has a member begin the run, and returns its invite.
func (m *member) found() string {
	m.Helper()
	m.start(func(ctx context.Context, out Output) error {
		o := opening{cfg: m.config(), founder: true, membership: membership{Listen: m.config().Listen}}
		if err := errors.Join(o.settleAddresses(nil, out), o.prepare(out.Log)); err != nil {
			return err
		}
		spec, err := o.specify(ctx, out)
		if err != nil {
			return errors.Join(err, o.store.Close())
		}
		spec.Model, spec.Train.Sync = fleetModel, m.size.Sync
		if m.size.Blocks > 0 { // settings know the layers of presets alone
			spec.Model.Blocks, spec.Train.Stages = m.size.Blocks, m.size.Stages
		}
		return o.begin(ctx, spec, out)
	})
	select {
	case invite := <-m.invite:
		return invite
	case <-m.process.ended:
		m.Fatalf("the founder has ended: %v", m.process.err)
	}
	return ""
}

// join has a member enter the run by an invite, or come back to it without one.
func (m *member) join(invite string) {
	m.start(func(ctx context.Context, out Output) error { return Join(ctx, m.config(), invite, out) })
}

// start runs a process of the member, which must have none.
func (m *member) start(run func(context.Context, Output) error) {
	ctx, end := context.WithCancel(m.ctx)
	p := &process{end: end, ended: make(chan struct{})}
	m.process = p
	m.faults.setDown(m.addr(), false)
	out := Output{
		Log:    m.logger(),
		Notice: m.notice,
		Events: func(e api.Event) {
			m.truth.see(m.name(), p.node.Load(), e)
			if m.tales != nil {
				m.tales(m, e)
			}
			if m.says != nil && e.Kind == api.KindStep {
				m.says(m, "step")
			}
		},
		simulation: &simulation{
			network: m.network,
			slow:    func() { time.Sleep(time.Duration(m.written.Load())) },
			opened: func(n *Node) {
				if m.size.Lines {
					n.announcer.Network = knownLines{n.announcer.Network}
				}
				if m.size.Lies != nil {
					n.parts.Exchange = func(id plan.WorkerID, e collective.Exchange) collective.Exchange { return m.size.Lies(n, id, e) }
				}
				n.checkpointer.Peers = copying{n.checkpointer.Peers, m.fleet, n.self}
				n.checkpointer.Consensus = slowDisk{n.checkpointer.Consensus, m.size.SlowDisk}
				if m.size.Opened != nil {
					m.size.Opened(n)
				}
				p.node.Store(n)
			},
		},
	}
	go func() {
		defer close(p.ended)
		defer m.faults.setDown(m.addr(), true)
		p.err = run(ctx, out)
	}()
}

// copying asks for copies of checkpoints while they are made.
type copying struct {
	checkpointer.Peers
	*fleet
	self plan.PeerID
}

func (c copying) Ask(ctx context.Context, peer plan.PeerID, protocol string, request any) ([]byte, error) {
	if !strings.HasPrefix(protocol, "/pnode/copy/") {
		return c.Peers.Ask(ctx, peer, protocol, request)
	}
	if c.uncopied.Load() {
		return nil, fmt.Errorf("%w: the disk is full", checkpointer.ErrRemote)
	}
	if barred := c.barred.Load(); barred != nil && *barred == [2]plan.PeerID{c.self, peer} {
		return nil, errors.New("connection refused")
	}
	return c.Peers.Ask(ctx, peer, protocol, request)
}

// knownLines finds what every line of a fleet is like in the time that a measurement takes, and sends nothing.
type knownLines struct{ gossip.Network }

func (l knownLines) Probe(ctx context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return plan.LinkProfile{}, ctx.Err()
	}
	over := l.ReachedBy(p)
	if over == "" {
		return plan.LinkProfile{}, fmt.Errorf("no connection with %s", p)
	}
	return plan.LinkProfile{Peer: p, Transport: over, RTTNanos: int64(2 * fleetLine.Latency), BytesPerS: int64(fleetLine.BitsPerS / 8)}, nil
}

// notice takes the founder's invite out of what people are told.
func (m *member) notice(line string) {
	if _, invite, ok := strings.Cut(line, "pnode join "); ok && m.number == 0 {
		select {
		case m.invite <- strings.TrimSpace(invite):
		default: // of a later start
		}
	}
}

// kill ends a member's process as the end of its machine does: nothing comes from it any more, and its machine says that
// nobody listens. The others' connections over TCP, which a simulated network has not, would break: told says to whom.
func (m *member) kill(told ...*member) {
	m.faults.setDown(m.addr(), true)
	if n := m.process.node.Load(); n != nil {
		select {
		case n.broken <- errKilled:
		default:
		}
		for _, other := range told {
			if o := other.node(); o != nil {
				o.links.PeerEnded(n.self)
				o.leader.Ended(n.self)
				o.raft.Ended(n.self)
			}
		}
	}
	m.process.end()
	<-m.process.ended
}

var errKilled = errors.New("killed")

// node returns the member's running node; nil for none.
func (m *member) node() *Node {
	if !m.running() {
		return nil
	}
	n := m.process.node.Load()
	if n != nil {
		m.self = n.self
	}
	return n
}

func (m *member) running() bool {
	if m.process == nil {
		return false
	}
	select {
	case <-m.process.ended:
		return false
	default:
		return true
	}
}

// until waits for something that must come within a time.
func (f *fleet) until(what string, limit time.Duration, ok func() bool) {
	f.Helper()
	for end := time.Now().Add(limit); !ok(); {
		if time.Now().After(end) {
			f.Fatalf("after %s: not %s%s", limit, what, f.standings())
		}
		f.look()
		if err := f.truth.wrong(); err != nil {
			f.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// untilStep waits until every member with a place has told a step: whoever ends then is not the only one that has its commit.
func (f *fleet) untilStep(step plan.Step) {
	f.Helper()
	f.until(fmt.Sprintf("step %d", step), time.Hour, func() bool { return f.truth.reached() >= step && f.settled() })
}

// settled reports whether every member with a place has told the newest step.
func (f *fleet) settled() bool {
	return !slices.ContainsFunc(f.members, func(m *member) bool {
		n := m.node()
		return n != nil && n.raft.State().Plan.Places(m.self) && !f.truth.has(m.name())
	})
}

// look has the truth check what every member knows now.
func (f *fleet) look() {
	f.oneLeads()
	f.restorable()
	f.explained()
}

// standings says for each member that runs what it does, and what it waits for.
func (f *fleet) standings() string {
	var b strings.Builder
	for _, m := range f.members {
		switch n := m.node(); {
		case n != nil:
			s := n.monitor.Status()
			fmt.Fprintf(&b, "\n%s (%s): %s, generation %d, step %d: %s", m.name(), n.self, s.State, s.Generation, s.Step, s.Waiting)
		case m.running():
			fmt.Fprintf(&b, "\n%s: at its start or its end", m.name())
		}
	}
	return b.String()
}

// restorable has the truth check of the newest checkpoint in the log that some holder of each layer has it.
func (f *fleet) restorable() {
	if newest := f.checkpoint(); newest.Step > f.restored {
		f.restored = newest.Step
		f.held(newest)
	}
}

// checkpoint returns the newest checkpoint in the log that a running member knows.
func (f *fleet) checkpoint() (newest consensus.Checkpoint) {
	for _, m := range f.members {
		if n := m.node(); n != nil {
			if c := n.raft.State().Checkpoint; c.Step > newest.Step {
				newest = c
			}
		}
	}
	return newest
}

// held has the truth check that some holder of each layer of a checkpoint has it.
func (f *fleet) held(c consensus.Checkpoint) {
	for _, layer := range c.Layers {
		if !slices.ContainsFunc(f.members, func(m *member) bool { return m.holds(layer) }) {
			f.truth.fails("the log has a checkpoint of step %d, and no holder of %v has layer %d", c.Step, layer.Holders, layer.Layer)
		}
	}
}

// holds reports whether a member that is named as a holder of a layer has it. One that does not run is believed.
func (m *member) holds(layer consensus.LayerRef) bool {
	if !slices.Contains(layer.Holders, m.self) {
		return false
	}
	n := m.node()
	return n == nil || !slices.ContainsFunc(layer.Chunks, func(h plan.Hash) bool { return !n.store.HasChunk(h) })
}

// standsStill is how long a run may make no step until all of its members must say why.
const standsStill = 30 * time.Second

// explained has the truth check that no member waits without a reason.
func (f *fleet) explained() {
	if at := f.truth.reached(); at != f.moved || f.movedAt.IsZero() {
		f.moved, f.movedAt, f.silent = at, time.Now(), nil
	}
	still := standsStill
	if f.size.Slow {
		still *= 4
	}
	if f.over() || time.Since(f.movedAt) < still {
		return
	}
	f.movedAt = time.Now()
	silent, inner := map[*member]bool{}, map[*member]plan.Step{}
	for _, m := range f.members {
		n := m.node()
		if n == nil {
			continue
		}
		for _, made := range n.monitor.Heartbeat().Inner {
			inner[m] = max(inner[m], made.Step)
		}
		if n.monitor.Status().Waiting == "" && inner[m] == f.inner[m] { // else it makes inner steps, which do not count yet
			silent[m] = true
			f.movedAt = time.Now().Add(still/6 - still) // a step may just have begun: look again soon
		}
		if silent[m] && f.silent[m] {
			f.truth.fails("no step for %v, and %s does not say why:%s", still, m.name(), f.standings())
		}
	}
	f.silent, f.inner = silent, inner
}

// oneLeads has the truth check that in no term two nodes lead.
func (f *fleet) oneLeads() {
	for _, m := range f.members {
		if n := m.node(); n != nil {
			f.truth.leads(n)
		}
	}
}

// dirs returns the folders of all members.
func (f *fleet) dirs() (dirs []string) {
	for _, m := range f.members {
		dirs = append(dirs, m.dir)
	}
	return dirs
}

// untilEnded waits for all processes to end by themselves, and returns their errors.
func (f *fleet) untilEnded(limit time.Duration) (errs []error) {
	f.Helper()
	f.until("ended", limit, func() bool { return !slices.ContainsFunc(f.members, (*member).running) })
	for _, m := range f.members {
		errs = append(errs, m.process.err)
	}
	return errs
}

func (w *faults) loses(from, to netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.passed != nil {
		w.passed.Add(1)
	}
	return w.down[from] || w.down[to] || w.mute[from] || w.deaf[to] || w.cut[[2]netip.Addr{from, to}]
}

// heal ends all faults of the network.
func (w *faults) heal() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute, w.deaf = map[netip.Addr]bool{}, map[netip.Addr]bool{}
	w.cut, w.late = map[[2]netip.Addr]bool{}, map[netip.Addr]time.Duration{}
}

// set begins faults of the network.
func (w *faults) set(begin func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	begin()
}

func (w *faults) delay(from, to netip.Addr) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.late[from] + w.late[to]
}

func (w *faults) closed(at netip.Addr) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.down[at] && !w.off[at]
}

// silenced has a machine not say that no process runs there, or say so again.
func (w *faults) silenced(at netip.Addr, off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off[at] = off
}

func (w *faults) setDown(at netip.Addr, down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down[at] = down
}

// recentLines keeps the newest lines that nodes have logged, to be shown where a test fails.
type recentLines struct {
	mu    sync.Mutex // guards lines
	lines []string
}

func (r *recentLines) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	const most = 200
	if len(r.lines) >= 2*most {
		r.lines = append(r.lines[:0], r.lines[most:]...)
	}
	r.lines = append(r.lines, line)
}

// testLog keeps a member's log lines for a test that fails, or writes them to the test's log at once where PNODE_VIRTUAL_LOG is set.
type testLog struct {
	*member
	atOnce bool
}

func (l *testLog) Write(b []byte) (int, error) {
	line := fmt.Sprintf("%s %s %s", time.Now().Format("15:04:05.000"), l.name(), strings.TrimSpace(string(b)))
	if l.atOnce {
		l.Log(line)
	} else {
		l.recent.add(line)
	}
	return len(b), nil
}

// logger returns a member's logger, of the level that PNODE_VIRTUAL_LOG names.
func (m *member) logger() *slog.Logger {
	text, level := os.Getenv("PNODE_VIRTUAL_LOG"), slog.LevelInfo
	if text != "" && level.UnmarshalText([]byte(text)) != nil {
		level = slog.LevelDebug
	}
	var h slog.Handler = slog.NewTextHandler(&testLog{m, text != ""}, &slog.HandlerOptions{Level: level})
	if m.says != nil {
		h = heard{h, m}
	}
	return slog.New(h)
}

// heard is a log handler that has a test hear every message before the node goes on.
type heard struct {
	slog.Handler
	*member
}

func (h heard) Enabled(context.Context, slog.Level) bool { return true }

func (h heard) Handle(ctx context.Context, r slog.Record) error {
	h.says(h.member, r.Message)
	if !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h heard) WithAttrs(attrs []slog.Attr) slog.Handler {
	return heard{h.Handler.WithAttrs(attrs), h.member}
}

func (h heard) WithGroup(name string) slog.Handler { return heard{h.Handler.WithGroup(name), h.member} }
