package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/alive"
	"pnode/swarm/alpn"
	"pnode/swarm/choice"
	"pnode/swarm/handshake"
	"pnode/swarm/hole"
	"pnode/swarm/host"
	"pnode/swarm/lifeline"
	"pnode/swarm/listen"
	"pnode/swarm/mesh"
	"pnode/swarm/peerstore"
	"pnode/swarm/probe"
	"pnode/swarm/relay"
	"pnode/swarm/streams"
	"pnode/swarm/tasks"
	"pnode/swarm/topics"
	"pnode/swarm/traffic"
)

// Swarm is this node's presence in a run: its host, the members it is connected to, and the channels between
// them. Its methods may be called from any goroutine.
type Swarm struct {
	cfg     Config
	host    *host.Host
	peers   *admission.Peers
	store   *peerstore.Store
	tasks   *tasks.Group
	streams *streams.Streams
	mesh    *mesh.Mesh
	topics  *topics.Topics
	data    *alpn.Transport
	probes  *alpn.Transport
	prober  *probe.Prober
	// relays carries data through other members, relayed the connections to them. dialed is closed when a member has
	// shown that it can dial this node.
	relays  *relay.Service
	relayed *alpn.Transport
	dialed  chan struct{}
	alive   *alive.Watch
	// lines, over the connections lifelines, tell ended of processes that end; nil without TCP.
	lines     *lifeline.Lines
	lifelines *alpn.Transport
	ended     atomic.Pointer[func(plan.PeerID)]
	mdns      io.Closer // nil without mDNS
	// belongs is what Follow was given.
	belongs atomic.Pointer[func(plan.PeerID) (belongs, told bool)]
	alone   alone
	// reachable reports whether other machines can connect.
	reachable bool
}

const (
	dataALPN = "pnode-data/1"
	// openTime bounds opening a stream for a caller whose context has no deadline.
	openTime = 15 * time.Second
)

// New starts a swarm: it listens, answers, and dials the bootstrap addresses until Close. It does not wait for a
// connection; Connect does. ctx bounds the start only.
func New(ctx context.Context, cfg Config) (*Swarm, error) {
	if err := cfg.fill(time.Now()); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("swarm: start: %w", err)
	}
	s := &Swarm{cfg: cfg, peers: admission.NewPeers(), store: peerstore.New(), tasks: tasks.New(), dialed: make(chan struct{})}
	hostConfig := host.Config{
		Identity: cfg.Identity, Listen: cfg.listen, Announce: cfg.Announce, Reach: cfg.Reach, Socket: cfg.Socket, Simulated: cfg.Simulated,
		Peers: s.peers, Known: known{s.store, cfg.bootstrap}, Tasks: s.tasks, Log: cfg.Logger,
		Reached: func() { close(s.dialed) },
	}
	s.reachable = !hostConfig.Local()
	var err error
	if s.host, err = host.New(hostConfig); err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start puts the protocols on the host and starts the loops.
func (s *Swarm) start() (err error) {
	run := admission.Run{ID: s.cfg.Run, OwnerKey: s.cfg.OwnerKey}
	log := s.cfg.Logger
	s.streams = &streams.Streams{Host: s.host, Peers: s.peers, Tasks: s.tasks, Log: log}
	s.mesh = mesh.New(mesh.Config{
		Host: s.host, RunKeys: run, MaxMembers: s.cfg.MaxMesh, Streams: s.streams,
		Peers: s.peers, Store: s.store, Tasks: s.tasks, Log: log, Belongs: s.tellBelongs, Drop: s.drop, Now: s.cfg.Clock.Earliest,
		Standing: []string{alive.Protocol, topics.ProtocolPrefix}, Tags: append(topics.Tags(s.cfg.Run), host.RelayTag),
		Busy: func(p peer.ID) bool {
			return slices.ContainsFunc(s.transports(), func(t *alpn.Transport) bool { return t.Has(p) })
		},
	})
	s.topics, err = topics.New(topics.Config{
		Run: s.cfg.Run, Epoch: s.cfg.Epoch, Streams: s.streams, Peers: s.peers, Store: s.store, Tasks: s.tasks, Log: log,
		Now: s.cfg.Clock.Earliest, Unknown: s.mesh.Unknown,
	})
	if err != nil {
		return err
	}
	if err := s.startConnections(); err != nil {
		return err
	}
	s.startAlive()
	if err := s.admit(run); err != nil {
		return err
	}
	if s.cfg.MDNS && s.reachable {
		s.mdns = s.mesh.Discover()
	}
	for _, b := range s.cfg.bootstrap {
		if b.ID != s.host.ID() {
			s.store.Seed(b.ID, b.Addrs)
		}
	}
	s.mesh.Hurry()
	s.tasks.Run(s.mesh.Run)
	return nil
}

// startConnections begins to make connections between members: those of the data plane, of measurements and, where there is TCP, the
// lifelines.
func (s *Swarm) startConnections() (err error) {
	connections := alpn.Config{
		ALPN: dataALPN, Identity: s.cfg.Identity, Host: s.host, Peers: s.peers, Tasks: s.tasks, Reach: s.mesh.Reach, Log: s.cfg.Logger,
		Choice: choice.New(),
	}
	through := connections
	if err := s.startRelays(connections); err != nil {
		return err
	}
	holes := &hole.Holes{Streams: s.streams}
	if s.reachable {
		through.Relay, through.Hole = s.through(dataALPN), holes.For(dataALPN)
	}
	if s.data, err = alpn.New(through); err != nil {
		return err
	}
	through.ALPN = probe.ALPN
	if s.reachable {
		through.Relay, through.Hole = s.through(probe.ALPN), holes.For(probe.ALPN)
	}
	if s.probes, err = alpn.New(through); err != nil {
		return err
	}
	for _, t := range []*alpn.Transport{s.data, s.probes} {
		holes.Serve(t.ALPN, func(ctx context.Context, c net.Conn) { t.Take(ctx, c, plan.TCP) })
	}
	s.prober = probe.New(s.probes, s.tasks, s.cfg.Logger)
	if s.host.TCP != nil && s.cfg.Simulated == nil {
		return s.startLifelines(connections)
	}
	return nil
}

// startAlive begins to find connections that lead nowhere any more.
func (s *Swarm) startAlive() {
	s.alive = alive.New(alive.Config{
		Host: s.host, Streams: s.streams, Peers: s.peers, Tasks: s.tasks, Log: s.cfg.Logger, Addrs: alive.MachineAddrs,
		Fresh: func(ctx context.Context, p plan.PeerID) error {
			conn, err := s.probes.Dial(ctx, p, "")
			if err == nil {
				conn.Close(0, "")
			}
			return err
		},
		Moved: func(gone []netip.Addr) {
			for _, t := range s.transports() {
				t.Moved(gone)
			}
			s.store.Hurry()
			s.mesh.Hurry()
		},
	})
	if s.cfg.Simulated == nil && s.reachable {
		s.tasks.Run(s.alive.Run)
	}
}

// admit begins to let members in, and to be let in.
func (s *Swarm) admit(run admission.Run) error {
	return handshake.Start(handshake.Config{
		Host: s.host, Run: run, Capability: s.cfg.Capability, Admit: s.cfg.Admit, Offer: s.cfg.Offer,
		Peers: s.peers, Store: s.store, Known: known{s.store, s.cfg.bootstrap}.Knows, Tasks: s.tasks, Log: s.cfg.Logger, Left: s.mesh.Lost, Now: s.cfg.Clock.Earliest,
		Joined: func(p peer.ID) {
			s.alone.end()
			s.host.Admitted(p)
			s.topics.Admitted(p)
			s.mesh.Joined(p)
			s.alive.Joined(p)
		},
	})
}

// startLifelines begins to find out when processes of members end.
func (s *Swarm) startLifelines(connections alpn.Config) error {
	connections.ALPN = lifeline.ALPN
	var err error
	if s.lifelines, err = alpn.New(connections); err != nil {
		return err
	}
	s.lines = lifeline.New(lifeline.Config{
		Conns: s.lifelines, Tasks: s.tasks, Log: s.cfg.Logger,
		Refuses: s.refusesLine,
		Ended: func(p plan.PeerID) {
			if f := s.ended.Load(); f != nil {
				(*f)(p)
			}
		},
	})
	return nil
}

// answerTime bounds the sign of life of a member whose lifeline broke and whose TCP port is closed: a firewall may have
// closed both while the process lives.
const answerTime = 500 * time.Millisecond

// refusesLine reports whether the process of a member whose lifeline broke has ended.
func (s *Swarm) refusesLine(ctx context.Context, p plan.PeerID) bool {
	if !s.lifelines.RefusesTCP(ctx, p) && !s.data.RefusesTCP(ctx, p) {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	refused, lives := make(chan bool, 1), make(chan bool, 1)
	if !s.tasks.Run(func(context.Context) { refused <- s.data.Refuses(ctx, p) }) ||
		!s.tasks.Run(func(context.Context) { lives <- s.alive.Answers(ctx, p) }) {
		return false
	}
	select {
	case over := <-refused:
		return over || !<-lives
	case yes := <-lives:
		return !yes
	}
}

// WatchProcesses has this node find out at once when the process of one of these members ends, where the member can be
// reached over TCP. It calls ended then, from any goroutine, until it is called again.
func (s *Swarm) WatchProcesses(peers []plan.PeerID, ended func(plan.PeerID)) {
	s.ended.Store(&ended)
	if s.lines != nil {
		s.lines.Follow(peers)
	}
}

// Close leaves the run: it ends every connection, stream and subscription and waits for all goroutines, handlers
// included. Calling it again does nothing.
func (s *Swarm) Close() error {
	if !s.tasks.Close() {
		return nil
	}
	var errs []error
	if s.mdns != nil {
		errs = append(errs, s.mdns.Close())
	}
	for _, t := range s.transports() {
		t.Close()
	}
	errs = append(errs, s.host.Close())
	s.tasks.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("swarm: close: %w", err)
	}
	return nil
}

// transports returns those of connections beside libp2p's own.
func (s *Swarm) transports() []*alpn.Transport {
	all := []*alpn.Transport{s.data, s.probes, s.relayed, s.lifelines}
	return slices.DeleteFunc(all, func(t *alpn.Transport) bool { return t == nil })
}

// ID returns this node's peer ID.
func (s *Swarm) ID() plan.PeerID { return s.cfg.Identity.Peer() }

// Addrs returns the addresses that others can dial, with /p2p/.
func (s *Swarm) Addrs() []string { return peerstore.FullAddrs(s.host.ID(), s.host.Addrs()) }

// Listening returns the "host:port" of the first address listened on, with the port that was found when any would
// do. A node gives it as Listen at its next start to be found there.
func (s *Swarm) Listening() (string, bool) {
	for _, a := range s.host.Network().ListenAddresses() {
		port, err := a.ValueForProtocol(ma.P_UDP)
		if err == nil && len(s.cfg.listen) > 0 {
			at := s.cfg.listen[0].Addr().String()
			if listen.Every(s.cfg.listen) {
				at = ""
			}
			return net.JoinHostPort(at, port), true
		}
	}
	return "", false
}

// Known lists the addresses of every other member met or heard of, with /p2p/, sorted. A node keeps them in its
// data folder and gives them as Bootstrap at its next start.
func (s *Swarm) Known() []string {
	s.mesh.Refresh()
	return s.store.Known()
}

// Members lists the capabilities of the peers that are connected and admitted now, sorted
// by peer, without this node.
func (s *Swarm) Members() []admission.Capability { return s.peers.Members() }

// Changed returns a channel that is closed when a member comes or goes next.
func (s *Swarm) Changed() <-chan struct{} { return s.peers.Changed() }

// Capability returns the verified capability of a peer met or heard of.
func (s *Swarm) Capability(p plan.PeerID) (admission.Capability, bool) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return admission.Capability{}, false
	}
	return s.store.Capability(id)
}

// Block removes a peer from the run as far as this node goes: it is disconnected, and
// refused from then on with a reason, as admission.Removed makes one.
func (s *Swarm) Block(p plan.PeerID, why error) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return // no connection can have such an ID
	}
	s.peers.Block(id, why)
	s.store.Forget(id)
	s.drop(id)
}

// drop closes all connections with a peer, over every transport.
func (s *Swarm) drop(p peer.ID) {
	if err := s.host.Network().ClosePeer(p); err != nil {
		s.cfg.Logger.Debug("swarm: close connections", "peer", p, "err", err)
	}
	s.data.Drop(p)
	s.probes.Drop(p)
	if s.lifelines != nil {
		s.lifelines.Drop(p)
	}
	s.relayed.Drop(p) // which ends what is relayed from it and to it
}

// Follow has the swarm ask from now on who belongs to the run: others tell of peers whom it has not met, and only those that
// belong are kept. told is false while nobody here can say so; then an invite stands for as many peers as it has uses.
func (s *Swarm) Follow(belongs func(plan.PeerID) (belongs, told bool)) { s.belongs.Store(&belongs) }

func (s *Swarm) tellBelongs(p plan.PeerID) (belongs, told bool) {
	if ask := s.belongs.Load(); ask != nil {
		return (*ask)(p)
	}
	return false, false
}

// Review forgets the peers that do not belong to the run, as far as that can be told, and asks a member again whom it
// knows: somebody may belong who did not before.
func (s *Swarm) Review() {
	s.store.Keep(func(id peer.ID) bool {
		belongs, told := s.tellBelongs(plan.PeerID(id.String()))
		return belongs || !told || s.peers.Member(id)
	})
	if members := s.peers.Members(); len(members) > 0 {
		s.mesh.AskPeers(members[rand.IntN(len(members))].ID())
	}
}

// Disconnect closes the connections to a member, which may come again and is judged anew.
func (s *Swarm) Disconnect(p plan.PeerID) {
	if id, err := peer.Decode(string(p)); err == nil {
		_ = s.host.Network().ClosePeer(id) // what is closed already is fine
	}
}

// Want is [mesh.Mesh.Want]: it keeps connections with these members, however many the run has.
func (s *Swarm) Want(peers []plan.PeerID) { s.mesh.Want(peers) }

// Connect is [mesh.Mesh.Connect]: it blocks until one of the peers at the addresses has admitted this node.
func (s *Swarm) Connect(ctx context.Context, addrs ...string) error {
	return s.mesh.Connect(ctx, addrs...)
}

// Handle is [streams.Streams.Handle]: it answers a protocol's streams from members.
func (s *Swarm) Handle(proto string, f func(ctx context.Context, from plan.PeerID, stream streams.Stream)) {
	s.streams.Handle(proto, f)
}

// Open opens a stream to a member, connecting to it first when its addresses are known. A peer that does not speak
// the protocol shows as an error here or at the first Read; one that speaks another version of it as an error that
// wraps version.Err.
func (s *Swarm) Open(ctx context.Context, p plan.PeerID, proto string) (streams.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	id, err := s.mesh.Reach(ctx, p)
	if err == nil {
		var st streams.Stream
		if st, err = s.streams.Open(ctx, id, protocol.ID(proto)); err == nil {
			return st, nil
		}
	}
	return nil, fmt.Errorf("swarm: open %s to %s: %w", proto, p, err)
}

// Topics returns the topics whose messages go to every member.
func (s *Swarm) Topics() *topics.Topics { return s.topics }

// Traffic returns what this node has sent and received on streams, by kind: all but data and measurements of lines.
func (s *Swarm) Traffic() []traffic.Count { return s.host.Traffic.Counts() }

// Data returns the data plane's connections, on ALPN pnode-data/1.
func (s *Swarm) Data() *alpn.Transport { return s.data }

// Probe is [probe.Prober.Probe]: it measures the link from this node to a member.
func (s *Swarm) Probe(ctx context.Context, p plan.PeerID) (plan.LinkProfile, error) {
	return s.prober.Probe(ctx, p)
}
