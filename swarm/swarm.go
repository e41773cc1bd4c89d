package swarm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
)

// Swarm is this node's presence in a run: its host, the members it is connected to, and
// the channels between them. Its methods may be called from any goroutine.
type Swarm struct {
	cfg      Config
	log      *slog.Logger
	host     *hosted
	door     *door
	book     *book
	tasks    *tasks
	instance instance
	gossip   *gossip
	data     *Data
	prober   *prober
	mdns     io.Closer // nil without mDNS
	// wake makes the mesh loop look at the book at once.
	wake chan struct{}
}

// New starts a swarm: it listens, answers, and dials the bootstrap addresses until Close.
// It does not wait for a connection; Connect does. ctx bounds the start only.
func New(ctx context.Context, cfg Config) (*Swarm, error) {
	if err := cfg.fill(time.Now()); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("swarm: start: %w", err)
	}
	s := &Swarm{
		cfg: cfg, log: cfg.Logger, door: newDoor(), book: newBook(),
		tasks: newTasks(), wake: make(chan struct{}, 1),
	}
	if _, err := rand.Read(s.instance[:]); err != nil {
		return nil, fmt.Errorf("swarm: start: %w", err)
	}
	// The host's options refer to door and tasks, so both are there before it.
	h, err := newHost(&s.cfg, gater{s.door}, relays{s.door, s.tasks})
	if err != nil {
		return nil, err
	}
	s.host = h
	if err := s.start(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start puts the protocols on the host and starts the loops.
func (s *Swarm) start() (err error) {
	if err := s.checkListening(); err != nil {
		return err
	}
	if s.gossip, err = newGossip(s); err != nil {
		return err
	}
	if s.data, err = newData(s); err != nil {
		return err
	}
	if s.prober, err = newProber(s); err != nil {
		return err
	}
	s.listenAdmission()
	s.servePeers()
	if s.cfg.MDNS && !s.cfg.local() {
		s.mdns = startMDNS(s)
	}
	for _, b := range s.cfg.bootstrap {
		if b.ID != s.host.ID() {
			s.book.seed(b.ID, b.Addrs)
		}
	}
	s.hurry()
	s.tasks.run(s.mesh)
	return nil
}

// checkListening refuses a start on only some of the addresses, which libp2p allows.
func (s *Swarm) checkListening() error {
	want := 2 * len(s.cfg.listen)
	if s.cfg.Socket != nil {
		want = len(s.cfg.listen)
	}
	if s.cfg.simulated != nil {
		want = len(s.cfg.simulated.listen)
	}
	if have := s.host.Network().ListenAddresses(); countDirect(have) < want {
		return fmt.Errorf("swarm: listen on %v: only %v could be opened; is another program using the port?", s.cfg.Listen, have)
	}
	return nil
}

func countDirect(addrs []ma.Multiaddr) (n int) {
	for _, a := range addrs {
		if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err != nil {
			n++
		}
	}
	return n
}

// Close leaves the run: it ends every connection, stream and subscription and waits for
// all goroutines, handlers included. Calling it again does nothing.
func (s *Swarm) Close() error {
	if !s.tasks.close() {
		return nil
	}
	var errs []error
	if s.mdns != nil {
		errs = append(errs, s.mdns.Close())
	}
	if s.data != nil {
		s.data.lane.close()
	}
	if s.prober != nil {
		s.prober.lane.close()
	}
	errs = append(errs, s.host.close())
	s.tasks.wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("swarm: close: %w", err)
	}
	return nil
}

// ID is this node's peer ID.
func (s *Swarm) ID() plan.PeerID { return s.cfg.Identity.Peer() }

// Addrs are the addresses others can dial, with /p2p/.
func (s *Swarm) Addrs() []string { return fullAddrs(s.host.ID(), s.host.Addrs()) }

// Listening is the "host:port" of the first address listened on, with the port that was
// found when any would do: what a node gives as Listen at its next start to be found there.
func (s *Swarm) Listening() (string, bool) {
	for _, a := range s.host.Network().ListenAddresses() {
		port, err := a.ValueForProtocol(ma.P_UDP)
		if err == nil && len(s.cfg.listen) > 0 {
			return net.JoinHostPort(s.cfg.listen[0].ip.String(), port), true
		}
	}
	return "", false
}

// Known lists the addresses of every other member met or heard of, with /p2p/, sorted: what
// a node keeps in its data folder and gives as Bootstrap at its next start.
func (s *Swarm) Known() []string {
	s.refresh()
	return s.book.known()
}

// refresh takes over the addresses that members announced to libp2p since their greeting,
// such as a mapped port or a relay's.
func (s *Swarm) refresh() {
	for _, c := range s.door.members() {
		s.book.learn(c, s.host.Peerstore().Addrs(c.peer))
	}
}

// Invite makes an invite to this run with this node's addresses, and others' as far as
// they fit when opt names none. Without the owner key the error is ErrNoOwnerKey.
func (s *Swarm) Invite(opt InviteOptions) (Invite, error) {
	opt.Run = s.cfg.Run
	if len(opt.Addrs) == 0 {
		opt.Addrs = inviteAddrs(s.Addrs(), s.Known(), s.cfg.local())
	}
	return s.cfg.Owner.Invite(opt, time.Now())
}

// inviteAddrs prefers own addresses, and leaves loopback ones out unless all are.
func inviteAddrs(own, known []string, local bool) []string {
	all := slices.Concat(own, known)
	if !local {
		all = slices.DeleteFunc(all, func(s string) bool { return manet.IsIPLoopback(ma.StringCast(s)) })
	}
	return all[:min(len(all), MaxInviteAddrs)]
}

// Members lists the capabilities of the peers that are connected and admitted now, sorted
// by peer, without this node.
func (s *Swarm) Members() []Capability { return s.door.members() }

// Changed is closed when a member comes or goes; ask again for the next change.
func (s *Swarm) Changed() <-chan struct{} { return s.door.watch() }

// Capability is the verified capability of a peer met or heard of.
func (s *Swarm) Capability(p plan.PeerID) (Capability, bool) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return Capability{}, false
	}
	return s.book.capability(id)
}

// Block removes a peer from the run as far as this node goes: it is disconnected, and
// refused from then on.
func (s *Swarm) Block(p plan.PeerID) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return // no connection can have such an ID
	}
	s.door.block(id)
	s.book.forget(id)
	s.data.lane.drop(id)
	s.prober.lane.drop(id)
	s.disconnect(id)
}

// disconnect closes every connection to p.
func (s *Swarm) disconnect(p peer.ID) {
	if err := s.host.Network().ClosePeer(p); err != nil {
		s.log.Debug("swarm: close connections", "peer", p, "err", err)
	}
}
