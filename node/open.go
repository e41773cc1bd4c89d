package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"pnode/node/leader"
	"pnode/planner/plan"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/gossip"
	"pnode/node/hardware"
	"pnode/node/ingest"
	"pnode/node/monitor"
	"pnode/pipeline/link"
	"pnode/pipeline/trace"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
	"pnode/swarm/host"
)

// opening holds what Train and Join find out before the parts are started.
type opening struct {
	cfg        config.Config // Dir, and what the node may use of this machine
	membership membership
	identity   admission.Identity
	owner      admission.Owner
	store      *checkpoint.Store
	hardware   hardware.Options
	// founder starts the consensus log of a new run; returning comes back to one, with a
	// store that must be there.
	founder, returning bool
	// reading opens the store to read alone.
	reading bool
}

// prepare reads how the hardware is used and opens the folder's identity and store.
func (o *opening) prepare(log *slog.Logger) (err error) {
	if o.hardware, err = hardware.OptionsOf(o.cfg); err != nil {
		return err
	}
	if o.identity, err = admission.LoadIdentity(o.cfg.Dir); err != nil {
		return err
	}
	o.store, err = checkpoint.Open(storeDir(o.cfg.Dir), checkpoint.Options{
		Self: o.identity.Peer(), Logger: log, MustExist: o.returning, ReadOnly: o.reading,
	})
	return err
}

// open starts all parts of a node. On an error everything is closed again, the store
// included.
func open(ctx context.Context, o opening, out Output) (_ *Node, err error) {
	n := &Node{
		log: out.Log, out: out, dir: o.cfg.Dir, name: o.cfg.MachineName(), self: o.identity.Peer(), membership: o.membership, store: o.store,
		heartbeats: gossip.NewTracker(), grants: admission.NewGrants(), leaveNow: make(chan struct{}), broken: make(chan error, 1),
	}
	if o.returning {
		n.lastKnown = o.membership.Known
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	if o.cfg.Trace != "" {
		if n.trace, err = trace.Create(o.cfg.Trace); err != nil {
			return nil, err
		}
	}
	var epoch [8]byte
	if _, err := rand.Read(epoch[:]); err != nil {
		return nil, fmt.Errorf("node: %w", err)
	}
	n.epoch = binary.LittleEndian.Uint64(epoch[:]) >> 12 // exact in every JSON reader
	o.hardware.Probe, o.hardware.Log = out.Probe, out.Log
	if n.hardware, err = hardware.Open(ctx, o.hardware); err != nil {
		return nil, err
	}
	// The end of ctx begins this node's way out, in good order: the parts live until Close.
	ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	n.base = ctx
	if err := n.openSwarm(ctx, o); err != nil {
		return nil, err
	}
	n.raft, err = consensus.Start(ctx, consensus.Config{
		Transport: newRaftTransport(n.swarm), KV: raftStore{n.store.Bucket("raft")},
		Bootstrap: o.founder, Contacts: n.contacts, Logger: n.log,
	})
	if err != nil {
		return nil, err
	}
	n.links = link.NewEndpoint(n.swarm.Data(), link.Options{Log: n.log})
	n.links.ServeChunks(n.store.Chunk)
	n.openRooms()
	hear := func(p gossip.Profile) { n.leader.Hear(ctx, p) }
	if err := errors.Join(n.heartbeats.Listen(n.swarm.Topics()), gossip.ListenToProfiles(n.swarm.Topics(), hear)); err != nil {
		return nil, err
	}
	n.api, err = api.Listen(api.Options{Dir: o.cfg.Dir, Node: struct {
		*monitor.Monitor
		*Node
	}{n.monitor, n}, Log: n.log})
	if err != nil {
		return nil, err
	}
	n.essential(func() error { return n.links.Run(ctx) })
	n.essential(func() error { return n.api.Run(ctx) })
	n.essential(func() error { return n.watchDisk(ctx) })
	n.group.Go(func() error { n.leader.Run(ctx); return nil })
	n.group.Go(func() error { n.sendHeartbeats(ctx); return nil })
	n.group.Go(func() error { n.monitor.FollowSteps(ctx); return nil })
	n.group.Go(func() error { n.monitor.Forward(n.out.Events); return nil })
	n.group.Go(func() error { n.monitor.KeepLosses(ctx); return nil })
	return n, nil
}

// openRooms gives each room what it needs of the node.
func (n *Node) openRooms() {
	n.requests = requests{n.swarm, n.log}
	n.announcer = &gossip.Announcer{
		Self: n.self, Epoch: n.epoch, Members: n.swarm.Topics(), Network: n.swarm, Machine: n.hardware, State: n.raft.State, Log: n.log,
	}
	n.leader = leader.New(leader.Config{
		Self: n.self, Consensus: n.raft, Peers: leaderPeers{n.swarm, n.membership.Capability}, Heartbeats: n.heartbeats, Log: n.log,
	})
	n.checkpointer = checkpointer.New(checkpointer.Config{
		Self: n.self, Store: n.store, Consensus: n.raft, Peers: n.requests, InitialPin: ingest.InitialPin, Log: n.log,
		Fetcher: checkpointer.Fetcher{Self: n.self, Store: n.store, Fetch: n.links.Fetch, Living: n.living},
	})
	n.monitor = monitor.New(monitor.Config{
		Self: n.self, Run: n.membership.Run, Boot: n.epoch, Dir: n.dir, Idle: n.hardware.Idle(), Trying: n.lastKnown,
		Deadlines: monitor.ReturnDeadlines{Silent: returnTimeout, Deserted: unreachableAfter},
		Consensus: n.raft, Beats: n.heartbeats, Peers: n.requests, Store: n.store, Living: n.living, Addrs: n.announcer.Addrs, Log: n.log,
	})
}

// openSwarm listens where this node was found last, if that is still free, and else where
// it was asked to.
func (n *Node) openSwarm(ctx context.Context, o opening) (err error) {
	cfg := swarm.Config{
		Identity: o.identity, Run: o.membership.Run, OwnerKey: o.membership.OwnerKey, Owner: o.owner,
		Capability: o.membership.Capability, Bootstrap: o.membership.Known, MDNS: true, Logger: n.log, Admit: n.grants.Admit,
		Socket: n.hardware.Socket(),
	}
	if o.membership.Listen != "" {
		cfg.Listen = []string{o.membership.Listen}
	}
	_, port, err := net.SplitHostPort(o.membership.Listen)
	anyPort := o.membership.Listen == "" || err == nil && port == "0"
	if o.membership.Last != "" && o.membership.Last != o.membership.Listen && anyPort {
		last := cfg
		last.Listen = []string{o.membership.Last}
		if n.swarm, err = swarm.New(ctx, last); !errors.Is(err, host.ErrPortInUse) {
			return err
		}
		n.log.Info("the last port is taken, listening on another", "last", o.membership.Last)
	}
	n.swarm, err = swarm.New(ctx, cfg)
	return err
}

// essential runs what the node cannot do without: its error ends the loop.
func (n *Node) essential(f func() error) {
	n.group.Go(func() error {
		err := f()
		if err != nil {
			select {
			case n.broken <- err:
			default: // the first error is enough
			}
		}
		return nil
	})
}

// leaderPeers answers the leader's questions about members; own is this node's capability.
type leaderPeers struct {
	*swarm.Swarm
	own []byte
}

// Refuses reports whether a member's host says that its process has ended.
func (p leaderPeers) Refuses(ctx context.Context, peer plan.PeerID) bool {
	return p.Data().Refuses(ctx, peer)
}

// Capability returns the verified capability of a member, this node included.
func (p leaderPeers) Capability(peer plan.PeerID) (admission.Capability, bool) {
	if peer != p.ID() {
		return p.Swarm.Capability(peer)
	}
	c, err := admission.DecodeCapability(p.own)
	return c, err == nil
}
