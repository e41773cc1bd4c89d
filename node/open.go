package node

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/gossip"
	"pnode/node/hardware"
	"pnode/node/ingest"
	"pnode/node/leader"
	"pnode/node/monitor"
	"pnode/pipeline/link"
	"pnode/pipeline/trace"
	"pnode/planner/plan"
	"pnode/swarm"
	"pnode/swarm/admission"
	"pnode/swarm/consensus"
	"pnode/swarm/listen"
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
		log: out.Log, out: out, dir: o.cfg.Dir, self: o.identity.Peer(), name: o.cfg.MachineName(),
		epoch:      rand.Uint64() >> 12, // exact in every JSON reader
		membership: o.membership, store: o.store, heartbeats: gossip.NewTracker(), grants: admission.NewGrants(),
		leaveNow: make(chan struct{}), broken: make(chan error, 1),
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
	o.hardware.Probe, o.hardware.Log = out.Probe, out.Log
	if n.hardware, err = hardware.Open(ctx, o.hardware); err != nil {
		return nil, err
	}
	// The end of ctx begins this node's way out, in good order: the parts live until Close.
	n.base, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := n.openNetwork(o); err != nil {
		return nil, err
	}
	n.openRooms()
	if err := n.listen(); err != nil {
		return nil, err
	}
	n.start()
	return n, nil
}

// openNetwork brings this node into reach of the others: the swarm, the consensus on one of its
// protocols, and the links between stages.
func (n *Node) openNetwork(o opening) (err error) {
	if n.swarm, err = n.openSwarm(o); err != nil {
		return err
	}
	n.raft, err = consensus.Start(n.base, consensus.Config{
		Transport: raftTransport{n.swarm}, KV: raftStore{n.store.Bucket("raft")},
		Run: string(o.membership.Run), Signer: o.identity, Bootstrap: o.founder, Contacts: n.contacts, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.links = link.NewEndpoint(n.swarm.Data(), link.Options{Log: n.log})
	n.links.ServeChunks(n.store.Chunk)
	return nil
}

// listen hears the members' gossip, and takes the port of the local interface.
func (n *Node) listen() (err error) {
	members := n.swarm.Topics()
	hear := func(p gossip.Profile) { n.leader.Hear(n.base, p) }
	if err := errors.Join(n.heartbeats.Listen(members), gossip.ListenToProfiles(members, hear)); err != nil {
		return err
	}
	n.api, err = api.Listen(api.Options{Dir: n.dir, Log: n.log, Node: struct {
		*monitor.Monitor
		*Node
	}{n.monitor, n}})
	return err
}

// start runs what goes on until Close. The error of a part that the node cannot do without ends
// the loop.
func (n *Node) start() {
	for _, essential := range []func(context.Context) error{n.links.Run, n.api.Run, n.watchDisk} {
		n.group.Go(func() error {
			if err := essential(n.base); err != nil {
				select {
				case n.broken <- err:
				default: // the first error is enough
				}
			}
			return nil
		})
	}
	for _, run := range []func(context.Context){n.leader.Run, n.sendHeartbeats, n.monitor.FollowSteps, n.monitor.KeepLosses} {
		n.group.Go(func() error { run(n.base); return nil })
	}
	n.group.Go(func() error { n.monitor.Forward(n.out.Events); return nil })
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
		Self: n.self, Run: n.membership.Run, Epoch: n.epoch, Dir: n.dir, Idle: n.hardware.Idle(), Trying: n.lastKnown,
		Deadlines: monitor.ReturnDeadlines{Silent: returnTimeout, Deserted: unreachableAfter},
		Consensus: n.raft, Beats: n.heartbeats, Peers: n.requests, Store: n.store, Living: n.living, Addrs: n.announcer.Addrs, Log: n.log,
	})
}

// openSwarm listens where this node was found last, if that is still free, and else where
// it was asked to.
func (n *Node) openSwarm(o opening) (*swarm.Swarm, error) {
	m := o.membership
	cfg := swarm.Config{
		Identity: o.identity, Run: m.Run, OwnerKey: m.OwnerKey, Owner: o.owner, Capability: m.Capability, Bootstrap: m.Known,
		MDNS: true, Logger: n.log, Admit: n.grants.Admit, Socket: n.hardware.Socket(),
	}
	_, port, err := net.SplitHostPort(m.Listen)
	anyPort := m.Listen == "" || err == nil && port == "0"
	if m.Last != "" && m.Last != m.Listen && anyPort {
		cfg.Listen = []string{m.Last}
		s, err := swarm.New(n.base, cfg)
		if !errors.Is(err, listen.ErrPortInUse) {
			return s, err
		}
		n.log.Info("the last port is taken, listening on another", "last", m.Last)
	}
	cfg.Listen = nil
	if m.Listen != "" {
		cfg.Listen = []string{m.Listen}
	}
	return swarm.New(n.base, cfg)
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
