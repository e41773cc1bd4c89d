package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"pnode/planner/plan"
	"pnode/swarm/consensus/feed"
)

// Config holds what a Node needs.
type Config struct {
	Transport Transport
	KV        KV
	// Run is the run's ID, which is part of what is signed.
	Run    string
	Signer Signer
	// Owner returns why a proof does not show that a peer is an owner of the run; nil if it does. Proof is this
	// node's, empty for who is none. A nil Owner finds none.
	Owner func(peer plan.PeerID, proof []byte) error
	Proof []byte
	// Epoch is a number that is larger at each start of this node, by more than the proposals that one start makes: their
	// counters follow it. 0 means the clock, in microseconds.
	Epoch uint64
	// Bootstrap founds a run with this node as the only voter. A store that holds a run's
	// log goes on with that one instead.
	Bootstrap bool
	// Contacts gives peers that a proposal may be sent to while no leader is known, as it
	// is for a node that is about to join. Nil is none.
	Contacts func() []plan.PeerID
	// Heard returns how long ago a peer was heard of, at most since this node began to listen, over its starts. Without it the
	// run cannot be recovered from here.
	Heard func(plan.PeerID) time.Duration
	// RecoverAfter is how long no leader may be known until this node recovers the run by itself, as Recover does; 0 is
	// never.
	RecoverAfter time.Duration
	// Now returns the time by which invites end; nil is this machine's clock.
	Now func() time.Time
	// Logger is where to log; nil is slog.Default.
	Logger *slog.Logger
}

// Node takes part in the consensus of one run.
type Node struct {
	config   Config
	self     plan.PeerID
	engine   atomic.Pointer[engine]
	store    *parking
	machine  *machine
	author   *author
	quotas   quotas
	notary   *notary
	vacancy  vacancy
	lineage  lineageStore
	timing   *timing
	follower *follower
	roll     *roll
	*Recoverer
	*succession
	*commits
	cancel   context.CancelFunc
	ended    chan struct{} // closed when everything has ended
	isolated sync.Once     // done by isolate
	failed   chan error    // gets the first failure of the KV
	requests *slots

	// mu guards what follows.
	mu       sync.Mutex
	changed  chan struct{} // closed and replaced with each change
	led      plan.Term     // the newest term in which this node leads and has the whole log
	silence  silence
	reign    reign
	failure  error // of the KV: why the node ends
	closing  bool
	changing bool           // to another lineage of the log
	applies  sync.WaitGroup // futures of raft that are waited for; grows only until closing
}

// Start begins to take part. The node ends when ctx ends, Close is called, or its KV cannot be
// written or read.
func Start(ctx context.Context, config Config) (*Node, error) {
	if config.Transport == nil || config.KV == nil || config.Signer == nil {
		return nil, errors.New("consensus: start: Config needs Transport, KV and Signer")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Contacts == nil {
		config.Contacts = func() []plan.PeerID { return nil }
	}
	if config.Owner == nil {
		config.Owner = func(plan.PeerID, []byte) error { return errNoOwner }
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	if config.Epoch == 0 {
		config.Epoch = uint64(time.Now().UnixMicro())
	}
	n := &Node{
		config: config, self: config.Transport.Self(),
		ended:   make(chan struct{}),
		changed: make(chan struct{}), failed: make(chan error, 1), requests: newSlots(),
		timing: newTiming(),
	}
	n.notary, n.follower, n.roll = &notary{node: n}, &follower{node: n}, &roll{node: n}
	n.succession = &succession{node: n, endings: make(chan plan.PeerID, maxEndings)}
	n.lineage.kv = config.KV
	n.Recoverer = &Recoverer{node: n, found: make(chan lineage, 1), wake: make(chan struct{}, 1)}
	n.commits = newCommits(n.timing)
	n.store = newParking(config.KV, n.fail, n.timing.wrote)
	n.silence.begin(time.Now())
	n.author = &author{Signer: config.Signer, self: n.self, run: config.Run, owner: config.Owner, proof: config.Proof, last: config.Epoch}
	n.machine = &machine{author: n.author, changed: n.broadcast, failed: n.fail}
	n.machine.state.Store(&State{})
	ctx, n.cancel = context.WithCancel(ctx)
	err := n.lineage.load()
	if err == nil {
		err = n.startRaft()
	}
	if err != nil {
		n.cancel()
		return nil, fmt.Errorf("consensus: start %s: %w", n.self, err)
	}
	config.Transport.Handle(func(peer plan.PeerID, s Stream) { n.serve(ctx, peer, s) })
	go n.run(ctx)
	return n, nil
}

// run owns the goroutines until ctx ends. Futures of raft are only answered while it runs, so those who
// wait for one are waited for before raft is shut down. A failed store parks raft: then the node is
// isolated first, and raft answers that it does not lead.
func (n *Node) run(ctx context.Context) {
	defer close(n.ended)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		var leading sync.WaitGroup
		leading.Go(func() { n.lead(ctx) })
		leading.Go(func() { n.Recoverer.run(ctx) })
		leading.Go(func() { feed.NewTaker(n.self, n.follower).Run(ctx) })
		leading.Go(func() { n.roll.run(ctx) })
		<-ctx.Done()
		n.mu.Lock()
		n.closing = true
		n.mu.Unlock()
		leading.Wait()
		n.requests.close()
		n.applies.Wait()
	}()
	select {
	case <-answered:
	case <-n.store.broken:
		n.isolate()
		<-answered
	}
	future := n.engine.Load().raft.Shutdown()
	n.isolate()
	if err := future.Error(); err != nil {
		n.config.Logger.Warn("consensus: raft ended", "err", err)
	}
}

// isolate ends every stream of raft, so that nothing is heard from a peer or sent to one any more, and
// then releases the parked callers of the store.
func (n *Node) isolate() {
	if e := n.engine.Load(); e != nil {
		e.isolate()
	}
	n.isolated.Do(func() { close(n.store.isolated) })
}

// Close leaves the other nodes to themselves and waits until everything has ended. It
// keeps the vote: to give that away use Leave before.
func (n *Node) Close() error {
	n.cancel()
	<-n.ended
	return nil
}

// Failed returns a channel that gets one error, which wraps ErrStore, when this node's store could not be written or
// read, or holds an entry that this program is too old for (version.Err). The node takes no part any more and is to be
// closed; the others go on without it.
func (n *Node) Failed() <-chan error { return n.failed }

// fail ends the node because its store failed, or holds an entry that this program is too old for.
func (n *Node) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failure != nil {
		return
	}
	n.failure = fmt.Errorf("%w: %w", ErrStore, err)
	n.machine.halted.Store(true)
	n.failed <- n.failure
	n.cancel()
}

// over returns why the node takes no part any more; nil while it does.
func (n *Node) over() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.failure != nil:
		return fmt.Errorf("%w: %w", ErrClosed, n.failure)
	case n.closing:
		return ErrClosed
	}
	return nil
}

// State returns the newest state that this node knows to be committed. It must not be changed.
func (n *Node) State() State { return *n.machine.state.Load() }

// Changed returns a channel that is closed at the next change of the state, the leader or the servers. Take it before
// reading what may change.
func (n *Node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}

// Log is a replicated state that changes. The channel of Changed is closed at the next change.
type Log interface {
	State() State
	Changed() <-chan struct{}
}

// Await blocks until the log has something. The error is that of ctx, which ended before.
func Await(ctx context.Context, log Log, has func(State) bool) error {
	for {
		changed := log.Changed()
		if has(log.State()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (n *Node) broadcast() {
	n.mu.Lock()
	defer n.mu.Unlock()
	close(n.changed)
	n.changed = make(chan struct{})
}

// Leader names the leader ("" when none is known) and the current term. self is true when
// this node leads and its State holds all that earlier leaders committed: from then on it
// may plan.
func (n *Node) Leader() (leader plan.PeerID, term plan.Term, self bool) {
	_, id := n.engine.Load().raft.LeaderWithID()
	term = plan.Term(n.engine.Load().raft.CurrentTerm())
	n.mu.Lock()
	defer n.mu.Unlock()
	return plan.PeerID(id), term, n.engine.Load().raft.State() == raft.Leader && n.led == term && n.failure == nil
}

// Servers returns the newest raft configuration that this node knows.
func (n *Node) Servers() []Server {
	var servers []Server
	for _, s := range n.engine.Load().raft.GetConfiguration().Configuration().Servers {
		servers = append(servers, Server{Peer: plan.PeerID(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	return servers
}

// observe is called by raft's goroutines with what happens; it must not wait.
func (n *Node) observe(o *raft.Observation) bool {
	n.mu.Lock()
	news := true
	switch d := o.Data.(type) {
	case raft.FailedHeartbeatObservation:
		news = n.silence.failed(plan.PeerID(d.PeerID), d.LastContact)
	case raft.ResumedHeartbeatObservation:
		news = n.silence.resumed(plan.PeerID(d.PeerID))
	case raft.RaftState:
		n.silence.begin(time.Now())
		n.timing.lead(d == raft.Leader)
	case raft.LeaderObservation:
		n.reign.take(plan.PeerID(d.LeaderID), time.Now())
		n.commits.forget()
	default:
		news = false
	}
	n.mu.Unlock()
	if news {
		n.broadcast()
	}
	return false
}
