package host

import (
	"context"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/relay"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/time/rate"

	"pnode/swarm/admission"
	"pnode/swarm/tasks"
)

// Members relay control messages for members that cannot be dialed, over libp2p's circuits. A circuit has no limit that
// a run reaches: one that ended would look like a member that is gone. What all circuits together carry is bounded
// by a rate, which control needs a small part of. Data goes other ways (package relay of swarm).
const (
	circuitsBytesPerS = 2 << 20
	circuitsBurst     = 128 << 10
	circuitBuffer     = 8 << 10
	circuitTime       = 10 * 365 * 24 * time.Hour
	circuitBytes      = 1 << 50
	// reservations is how many members may be reached through this node, circuitsPerPeer how many others one is
	// connected to so.
	reservations    = 512
	circuitsPerPeer = 256
)

// circuits decides who is relayed through this node: members.
type circuits struct {
	peers *admission.Peers
	tasks *tasks.Group
}

var _ relay.ACLFilter = circuits{}

// serve has a host relay for members.
func (c circuits) serve(h host.Host) (*relay.Relay, error) {
	resources := relay.DefaultResources()
	// With a limit, however high, libp2p opens streams on a circuit only for those that ask for any connection.
	resources.Limit = &relay.RelayLimit{Duration: circuitTime, Data: circuitBytes}
	resources.MaxReservations, resources.MaxReservationsPerIP, resources.MaxReservationsPerASN = reservations, reservations, reservations
	resources.MaxCircuits, resources.BufferSize = circuitsPerPeer, circuitBuffer
	paced := pacedHost{h, c.tasks.Context, rate.NewLimiter(circuitsBytesPerS, circuitsBurst)}
	return relay.New(paced, relay.WithResources(resources), relay.WithACL(c))
}

// AllowReserve reports whether a peer may be reached through this node: a member may.
func (c circuits) AllowReserve(p peer.ID, _ ma.Multiaddr) bool {
	ctx, cancel := context.WithTimeout(c.tasks.Context, admission.TimeLimit)
	defer cancel()
	return c.peers.Wait(ctx, p) == nil
}

// AllowConnect reports whether one peer may reach another through this node: a member may reach a member.
func (c circuits) AllowConnect(src peer.ID, _ ma.Multiaddr, dest peer.ID) bool {
	return c.AllowReserve(src, nil) && c.peers.Member(dest)
}

// pacedHost bounds the rate of all streams of a protocol that is given it, together.
type pacedHost struct {
	host.Host
	ctx     context.Context
	limiter *rate.Limiter
}

// SetStreamHandler paces what is written to streams that others open.
func (h pacedHost) SetStreamHandler(p protocol.ID, f network.StreamHandler) {
	h.Host.SetStreamHandler(p, func(s network.Stream) { f(pacedStream{s, h.ctx, h.limiter}) })
}

// NewStream paces what is written to a stream that is opened here.
func (h pacedHost) NewStream(ctx context.Context, p peer.ID, protos ...protocol.ID) (network.Stream, error) {
	s, err := h.Host.NewStream(ctx, p, protos...)
	if err != nil {
		return nil, err
	}
	return pacedStream{s, h.ctx, h.limiter}, nil
}

type pacedStream struct {
	network.Stream
	ctx     context.Context
	limiter *rate.Limiter
}

// Write waits until the bytes may be sent. Longer writes than the burst are not made on these streams.
func (s pacedStream) Write(b []byte) (int, error) {
	if err := s.limiter.WaitN(s.ctx, len(b)); err != nil {
		return 0, err
	}
	return s.Stream.Write(b)
}
