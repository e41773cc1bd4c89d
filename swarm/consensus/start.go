package consensus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"pnode/planner/plan"
	"pnode/swarm/consensus/feed"
	"pnode/swarm/neterr"
)

// Timing: with these a new leader plans 3 to 5 s after the old one crashed, and one whose
// machine is busy with other things for leaseTimeout stays: an election stops every change of
// the roster, and is likelier to be needed again where it was needed for want of time. Where round trips are long,
// type timing raises what a follower and a candidate wait for.
const (
	heartbeatTimeout  = 2 * time.Second
	leaseTimeout      = 1500 * time.Millisecond
	commitTimeout     = 50 * time.Millisecond
	rpcTimeout        = 5 * time.Second
	enqueueTimeout    = time.Second // raft takes in at once what it is asked, unless it is stuck
	snapshotInterval  = 30 * time.Second
	snapshotThreshold = 512
	trailingLogs      = 128
	maxAppendEntries  = 16
	maxPool           = 3
)

// engine is raft with its connections. A recovery replaces it.
type engine struct {
	raft      *raft.Raft
	transport *guarded
	layer     *streamLayer
	snapshots *snapshotStore
	giver     *feed.Giver
}

// isolate ends every stream of raft.
func (e *engine) isolate() {
	e.transport.Close()
	e.transport.CloseStreams()
	e.layer.Close()
}

// startRaft starts raft in the lineage of this node's store, and begins to observe it.
func (n *Node) startRaft() error {
	conf := raftConfig(n.self, n.config.Logger)
	if err := n.settle(conf); err != nil {
		return err
	}
	logger := conf.Logger
	e := &engine{layer: newStreamLayer(n.config.Transport, n.lineage.get().id(), n.notary.shown, n.timing), snapshots: &snapshotStore{kv: n.config.KV}}
	e.giver = feed.NewGiver(source{n, e}, logger)
	n.follower.heard(time.Time{})
	e.transport = &guarded{node: n, logger: logger, messages: make(chan raft.RPC), raised: map[raft.ServerID]struct{}{}, told: map[raft.ServerID]told{}, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: e.layer, MaxPool: maxPool, Timeout: rpcTimeout, Logger: logger,
	})}
	if err := n.makeRaft(conf, e); err != nil {
		e.isolate()
		return err
	}
	n.engine.Store(e)
	e.raft.RegisterObserver(raft.NewObserver(nil, false, n.observe))
	n.mu.Lock()
	_, leader := e.raft.LeaderWithID() // what raft did before it was observed
	n.reign.take(plan.PeerID(leader), time.Now())
	n.mu.Unlock()
	err := n.hurry()
	n.timing.begin(e.raft)
	return err
}

// raftConfig returns raft's configuration of a node.
func raftConfig(self plan.PeerID, log *slog.Logger) *raft.Config {
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Off})
	logger.RegisterSink(slogSink{log})
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(self)
	conf.HeartbeatTimeout, conf.ElectionTimeout = heartbeatTimeout, heartbeatTimeout
	conf.LeaderLeaseTimeout, conf.CommitTimeout = leaseTimeout, commitTimeout
	conf.SnapshotInterval, conf.SnapshotThreshold = snapshotInterval, snapshotThreshold
	conf.TrailingLogs, conf.MaxAppendEntries = trailingLogs, maxAppendEntries
	conf.BatchApplyCh = true // it finds those waiting that go to it together
	conf.ShutdownOnRemove, conf.NoLegacyTelemetry = false, true
	conf.Logger = logger
	return conf
}

// makeRaft starts raft. A store that fails parks the goroutine that raft is made on, so that this one
// waits for it or for the failure.
func (n *Node) makeRaft(conf *raft.Config, e *engine) (err error) {
	made := make(chan struct{})
	go func() {
		defer close(made)
		if err = n.found(conf, e.snapshots, e.transport); err == nil {
			e.raft, err = raft.NewRaft(conf, n.machine, n.store, n.store, e.snapshots, e.transport)
		}
	}()
	select {
	case <-made:
		if err != nil && n.machine.unreadable != nil { // raft says only that there is no snapshot to load
			err = n.machine.unreadable
		}
		return err
	case <-n.store.broken:
	}
	e.isolate()
	n.isolate()
	<-made
	if e.raft != nil {
		e.raft.Shutdown().Error()
	}
	return n.over()
}

// found checks the log of a store that holds one, and writes the first configuration to an empty store
// of a node that is to found a run.
func (n *Node) found(conf *raft.Config, snapshots *snapshotStore, transport raft.Transport) error {
	head, err := snapshots.head()
	if err != nil {
		return err
	}
	if err := n.store.continues(head.Meta.Index); err != nil {
		return err
	}
	if !n.config.Bootstrap || n.lineage.get().Recovery != nil {
		return nil
	}
	exists, err := raft.HasExistingState(n.store, n.store, snapshots)
	if err != nil || exists {
		return err
	}
	return raft.BootstrapCluster(conf, n.store, n.store, snapshots, transport, raft.Configuration{
		Servers: []raft.Server{{ID: conf.LocalID, Address: raft.ServerAddress(n.self)}},
	})
}

// hurry lets the only voter stand for election at once: nobody else could be leading.
// Raft acts on a lowered heartbeat timeout immediately; the usual one is set again before
// it matters.
func (n *Node) hurry() error {
	voters := slices.DeleteFunc(n.Servers(), func(s Server) bool { return !s.Voter })
	if len(voters) != 1 || voters[0].Peer != n.self {
		return nil
	}
	usual := n.engine.Load().raft.ReloadableConfig()
	hasty := usual
	hasty.HeartbeatTimeout = leaseTimeout
	if err := n.engine.Load().raft.ReloadConfig(hasty); err != nil {
		return err
	}
	return n.engine.Load().raft.ReloadConfig(usual)
}

// slogSink passes on what raft logs, quieter: a peer that is away is for the roster to deal
// with, and raft repeats it with every heartbeat.
type slogSink struct{ logger *slog.Logger }

// Accept is called with each record, whatever its level.
func (s slogSink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	if level >= hclog.Error && !slices.ContainsFunc(args, aboutPeer) {
		to = slog.LevelInfo // a stream that broke, mostly; what matters comes back as an error
	}
	args = slices.Clone(args)
	for i, a := range args {
		if f, ok := a.(hclog.Format); ok && len(f) > 0 {
			args[i] = fmt.Sprintf(fmt.Sprint(f[0]), f[1:]...)
		}
	}
	s.logger.Log(context.Background(), to, "raft: "+msg, args...)
}

// aboutPeer recognises the keys under which raft names the peer that did not answer, and
// errors of streams that ended, as all do at the end of a run.
func aboutPeer(arg any) bool {
	switch arg {
	case "peer", "target", "server-id":
		return true
	}
	err, ok := arg.(error)
	return ok && (errors.Is(err, net.ErrClosed) || neterr.Cut(err) || neterr.Silent(err))
}
