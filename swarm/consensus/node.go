package consensus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sync/errgroup"

	"pnode/planner"
)

// Timing: with these a new leader plans about 2.5 s after the old one crashed.
const (
	heartbeatTimeout  = time.Second
	leaseTimeout      = 500 * time.Millisecond
	commitTimeout     = 50 * time.Millisecond
	rpcTimeout        = 5 * time.Second
	enqueueTimeout    = time.Second // raft takes in at once what it is asked, unless it is stuck
	snapshotInterval  = 30 * time.Second
	snapshotThreshold = 512
	trailingLogs      = 128
	maxAppendEntries  = 16
	maxPool           = 3
)

// Config is what a Node needs.
type Config struct {
	Transport Transport
	KV        KV
	// Bootstrap founds a run with this node as the only voter. A store that holds a run's
	// log goes on with that one instead.
	Bootstrap bool
	// Contacts gives peers that a proposal may be sent to while no leader is known, as it
	// is for a node that is about to join. Nil is none.
	Contacts func() []planner.PeerID
	// Logger is where to log; nil is slog.Default.
	Logger *slog.Logger
}

// Node takes part in the consensus of one run.
type Node struct {
	config    Config
	self      planner.PeerID
	transport *raft.NetworkTransport
	layer     *streamLayer
	raft      *raft.Raft
	fence     *fence
	machine   *machine
	cancel    context.CancelFunc
	ended     chan struct{} // closed when everything has ended

	// mu guards what follows.
	mu      sync.Mutex
	changed chan struct{} // closed and replaced with each change
	led     planner.Term  // the newest term in which this node leads and has the whole log
	silence silence
	reign   reign
	closing bool
	applies sync.WaitGroup // futures of raft that are waited for; grows only until closing
}

// Start begins to take part. The node ends when ctx ends or Close is called.
func Start(ctx context.Context, config Config) (*Node, error) {
	if config.Transport == nil || config.KV == nil {
		return nil, errors.New("consensus: start: Config needs Transport and KV")
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	if config.Contacts == nil {
		config.Contacts = func() []planner.PeerID { return nil }
	}
	n := &Node{
		config: config, self: config.Transport.Self(),
		layer: newStreamLayer(config.Transport), ended: make(chan struct{}),
		changed: make(chan struct{}),
	}
	n.fence = newFence(config.KV, func() { _ = n.layer.Close() }) // it gives no error
	n.silence.begin(time.Now())
	n.machine = newMachine(n.broadcast)
	if err := n.startRaft(); err != nil {
		return nil, fmt.Errorf("consensus: start %s: %w", n.self, err)
	}
	ctx, n.cancel = context.WithCancel(ctx)
	go n.run(ctx)
	return n, nil
}

func (n *Node) startRaft() error {
	logger := raftLogger(n.config.Logger)
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(n.self)
	conf.HeartbeatTimeout, conf.ElectionTimeout = heartbeatTimeout, heartbeatTimeout
	conf.LeaderLeaseTimeout, conf.CommitTimeout = leaseTimeout, commitTimeout
	conf.SnapshotInterval, conf.SnapshotThreshold = snapshotInterval, snapshotThreshold
	conf.TrailingLogs, conf.MaxAppendEntries = trailingLogs, maxAppendEntries
	conf.ShutdownOnRemove, conf.NoLegacyTelemetry = false, true
	conf.Logger = logger

	logs, snapshots := logStore{n.fence}, &snapshotStore{kv: n.fence}
	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.layer, MaxPool: maxPool, Timeout: rpcTimeout, Logger: logger,
	})
	err := n.found(conf, logs, snapshots)
	if err == nil {
		n.raft, err = raft.NewRaft(conf, n.machine, logs, stableStore{logs, n.fence}, snapshots, n.transport)
	}
	select {
	case err = <-n.fence.failed: // raft writes its term when it starts
		_ = n.raft.Shutdown().Error() // the first error is the one to tell
	default:
	}
	if err != nil {
		n.transport.Close()
		return err
	}
	n.watch()
	return n.hurry()
}

// watch begins to observe raft, and takes in what it did before.
func (n *Node) watch() {
	n.raft.RegisterObserver(raft.NewObserver(nil, false, n.observe))
	n.mu.Lock()
	defer n.mu.Unlock()
	_, leader := n.raft.LeaderWithID()
	n.reign.take(planner.PeerID(leader), time.Now())
}

// found writes the first configuration to an empty store, if the node is to found a run.
func (n *Node) found(conf *raft.Config, logs logStore, snapshots *snapshotStore) error {
	if !n.config.Bootstrap {
		return nil
	}
	exists, err := raft.HasExistingState(logs, logs, snapshots)
	if err != nil || exists {
		return err
	}
	return raft.BootstrapCluster(conf, logs, logs, snapshots, n.transport, raft.Configuration{
		Servers: []raft.Server{{ID: conf.LocalID, Address: raft.ServerAddress(n.self)}},
	})
}

// hurry lets the only voter stand for election at once: nobody else could be leading.
// Raft acts on a lowered heartbeat timeout immediately; the usual one is set again before
// it matters.
func (n *Node) hurry() error {
	voters := 0
	for _, s := range n.Servers() {
		if s.Voter && s.Peer != n.self {
			return nil
		}
		if s.Voter {
			voters++
		}
	}
	if voters == 0 {
		return nil
	}
	usual := n.raft.ReloadableConfig()
	hasty := usual
	hasty.HeartbeatTimeout = leaseTimeout
	if err := n.raft.ReloadConfig(hasty); err != nil {
		return err
	}
	return n.raft.ReloadConfig(usual)
}

// run owns the goroutines until ctx ends. Futures of raft are only answered while it runs,
// so those who wait for one are waited for first.
func (n *Node) run(ctx context.Context) {
	defer close(n.ended)
	var group errgroup.Group
	group.Go(func() error { n.accept(ctx); return nil })
	group.Go(func() error { n.lead(ctx); return nil })
	<-ctx.Done()
	n.mu.Lock()
	n.closing = true
	n.mu.Unlock()
	group.Wait()
	n.applies.Wait()
	future := n.raft.Shutdown()
	n.transport.CloseStreams()
	n.layer.Close()
	if err := future.Error(); err != nil {
		n.config.Logger.Warn("consensus: raft ended", "err", err)
	}
}

// Close leaves the other nodes to themselves and waits until everything has ended. It
// keeps the vote: to give that away use Leave before.
func (n *Node) Close() error {
	n.cancel()
	<-n.ended
	return nil
}

// Failed gives one error when this node's term could not be stored. The node takes no part
// any more and is to be closed.
func (n *Node) Failed() <-chan error { return n.fence.failed }

// State is the newest state this node knows to be committed. It must not be changed.
func (n *Node) State() State { return *n.machine.state.Load() }

// Changed gives a channel that is closed at the next change of the state, the leader or
// the servers. Take it before reading what may change.
func (n *Node) Changed() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
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
func (n *Node) Leader() (leader planner.PeerID, term planner.Term, self bool) {
	_, id := n.raft.LeaderWithID()
	term = planner.Term(n.raft.CurrentTerm())
	n.mu.Lock()
	defer n.mu.Unlock()
	return planner.PeerID(id), term, n.raft.State() == raft.Leader && n.led == term
}

// Servers is the newest raft configuration that this node knows.
func (n *Node) Servers() []Server {
	var servers []Server
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		servers = append(servers, Server{Peer: planner.PeerID(s.ID), Voter: s.Suffrage == raft.Voter})
	}
	return servers
}

// observe is called by raft's goroutines with what happens; it must not wait.
func (n *Node) observe(o *raft.Observation) bool {
	n.mu.Lock()
	news := true
	switch d := o.Data.(type) {
	case raft.FailedHeartbeatObservation:
		news = n.silence.failed(planner.PeerID(d.PeerID), d.LastContact)
	case raft.ResumedHeartbeatObservation:
		news = n.silence.resumed(planner.PeerID(d.PeerID))
	case raft.RaftState:
		n.silence.begin(time.Now())
	case raft.LeaderObservation:
		n.reign.take(planner.PeerID(d.LeaderID), time.Now())
	default:
		news = false
	}
	n.mu.Unlock()
	if news {
		n.broadcast()
	}
	return false
}
