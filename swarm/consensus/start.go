package consensus

import (
	"io"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"pnode/planner/plan"
)

// Timing: with these a new leader plans 3 to 5 s after the old one crashed, and one whose
// machine is busy with other things for leaseTimeout stays: an election stops every change of
// the roster, and is likelier to be needed again where it was needed for want of time.
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

// startRaft makes raft with this node's store and transport, and begins to observe it.
func (n *Node) startRaft() error {
	logger := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Output: io.Discard, Level: hclog.Off})
	logger.RegisterSink(slogSink{n.config.Logger})
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(n.self)
	conf.HeartbeatTimeout, conf.ElectionTimeout = heartbeatTimeout, heartbeatTimeout
	conf.LeaderLeaseTimeout, conf.CommitTimeout = leaseTimeout, commitTimeout
	conf.SnapshotInterval, conf.SnapshotThreshold = snapshotInterval, snapshotThreshold
	conf.TrailingLogs, conf.MaxAppendEntries = trailingLogs, maxAppendEntries
	conf.ShutdownOnRemove, conf.NoLegacyTelemetry = false, true
	conf.Logger = logger

	n.transport = &guarded{node: n, logger: logger, messages: make(chan raft.RPC), raised: map[raft.ServerID]struct{}{}, NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.layer, MaxPool: maxPool, Timeout: rpcTimeout, Logger: logger,
	})}
	if err := n.makeRaft(conf); err != nil {
		n.isolate()
		return err
	}
	n.raft.RegisterObserver(raft.NewObserver(nil, false, n.observe))
	n.mu.Lock()
	_, leader := n.raft.LeaderWithID() // what raft did before it was observed
	n.reign.take(plan.PeerID(leader), time.Now())
	n.mu.Unlock()
	return n.hurry()
}

// makeRaft starts raft. A store that fails parks the goroutine that raft is made on, so that this one
// waits for it or for the failure.
func (n *Node) makeRaft(conf *raft.Config) (err error) {
	made := make(chan struct{})
	go func() {
		defer close(made)
		snapshots := &snapshotStore{kv: n.config.KV}
		if err = n.found(conf, snapshots); err == nil {
			n.raft, err = raft.NewRaft(conf, n.machine, n.store, n.store, snapshots, n.transport)
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
	n.isolate()
	<-made
	if n.raft != nil {
		n.raft.Shutdown().Error()
	}
	return <-n.failed
}

// found checks the log of a store that holds one, and writes the first configuration to an empty store
// of a node that is to found a run.
func (n *Node) found(conf *raft.Config, snapshots *snapshotStore) error {
	head, err := snapshots.head()
	if err != nil {
		return err
	}
	if err := n.store.continues(head.Meta.Index); err != nil {
		return err
	}
	if !n.config.Bootstrap {
		return nil
	}
	exists, err := raft.HasExistingState(n.store, n.store, snapshots)
	if err != nil || exists {
		return err
	}
	return raft.BootstrapCluster(conf, n.store, n.store, snapshots, n.transport, raft.Configuration{
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
	usual := n.raft.ReloadableConfig()
	hasty := usual
	hasty.HeartbeatTimeout = leaseTimeout
	if err := n.raft.ReloadConfig(hasty); err != nil {
		return err
	}
	return n.raft.ReloadConfig(usual)
}
