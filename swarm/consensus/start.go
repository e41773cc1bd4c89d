package consensus

import (
	"time"

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
	logger := raftLogger(n.config.Logger)
	conf := raft.DefaultConfig()
	conf.LocalID = raft.ServerID(n.self)
	conf.HeartbeatTimeout, conf.ElectionTimeout = heartbeatTimeout, heartbeatTimeout
	conf.LeaderLeaseTimeout, conf.CommitTimeout = leaseTimeout, commitTimeout
	conf.SnapshotInterval, conf.SnapshotThreshold = snapshotInterval, snapshotThreshold
	conf.TrailingLogs, conf.MaxAppendEntries = trailingLogs, maxAppendEntries
	conf.ShutdownOnRemove, conf.NoLegacyTelemetry = false, true
	conf.Logger = logger

	n.transport = raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream: n.layer, MaxPool: maxPool, Timeout: rpcTimeout, Logger: logger,
	})
	if err := n.makeRaft(conf); err != nil {
		n.transport.Close()
		return err
	}
	n.watch()
	return n.hurry()
}

// makeRaft starts raft. A store that fails ends the goroutine it fails on, so this one
// waits for another.
func (n *Node) makeRaft(conf *raft.Config) error {
	var err error
	made := make(chan struct{})
	go func() {
		defer close(made)
		logs, snapshots := guard{logStore{n.config.KV}, n.fail}, &snapshotStore{kv: n.config.KV}
		if err = n.found(conf, logs, snapshots); err == nil {
			n.raft, err = raft.NewRaft(conf, n.machine, logs, logs, snapshots, n.transport)
		}
	}()
	<-made
	if n.raft == nil && err == nil {
		err = <-n.failed
	}
	return err
}

// watch begins to observe raft, and takes in what it did before.
func (n *Node) watch() {
	n.raft.RegisterObserver(raft.NewObserver(nil, false, n.observe))
	n.mu.Lock()
	defer n.mu.Unlock()
	_, leader := n.raft.LeaderWithID()
	n.reign.take(plan.PeerID(leader), time.Now())
}

// found writes the first configuration to an empty store, if the node is to found a run.
func (n *Node) found(conf *raft.Config, logs guard, snapshots *snapshotStore) error {
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
