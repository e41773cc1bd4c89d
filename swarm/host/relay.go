package host

import (
	"context"
	"sync"
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
// by a rate, which control needs a small part of, and in which members take turns. Data goes other ways (package relay of swarm).
const (
	circuitsBytesPerS = 2 << 20
	circuitsBurst     = 128 << 10
	circuitBuffer     = 8 << 10
	circuitTime       = 10 * 365 * 24 * time.Hour
	circuitBytes      = 1 << 50
	// reservations is how many members may be reached through this node, circuitsPerPeer how many others one is
	// connected to so.
	reservations    = 512
	circuitsPerPeer = 96
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
	paced := pacedHost{h, newPace(c.tasks.Context, rate.NewLimiter(circuitsBytesPerS, circuitsBurst))}
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

// pacedHost bounds the rate of all streams of a protocol that is given it, together. The members that send on them take
// turns: one that sends on many gets no more than one that sends on one.
type pacedHost struct {
	host.Host
	pace *pace
}

// SetStreamHandler paces what is read from streams that others open.
func (h pacedHost) SetStreamHandler(p protocol.ID, f network.StreamHandler) {
	h.Host.SetStreamHandler(p, func(s network.Stream) { f(pacedStream{s, h.pace}) })
}

// NewStream paces what is read from a stream that is opened here.
func (h pacedHost) NewStream(ctx context.Context, p peer.ID, protos ...protocol.ID) (network.Stream, error) {
	s, err := h.Host.NewStream(ctx, p, protos...)
	if err != nil {
		return nil, err
	}
	return pacedStream{s, h.pace}, nil
}

type pacedStream struct {
	network.Stream
	pace *pace
}

// Read returns what was read once it may be sent on.
func (s pacedStream) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b[:min(len(b), circuitsBurst)])
	if n > 0 {
		if err := s.pace.wait(s.Conn().RemotePeer(), n); err != nil {
			return 0, err
		}
	}
	return n, err
}

// pace is a rate in which peers take turns. Its methods may be called from any goroutine.
type pace struct {
	ctx     context.Context
	limiter *rate.Limiter
	// mu guards turns, of the peers that wait.
	mu    sync.Mutex
	turns map[peer.ID]*turn
}

// turn lets one of the streams of a peer go first: taken holds an element meanwhile.
type turn struct {
	taken   chan struct{}
	waiting int
}

func newPace(ctx context.Context, limiter *rate.Limiter) *pace {
	return &pace{ctx: ctx, limiter: limiter, turns: map[peer.ID]*turn{}}
}

// wait blocks until n bytes of a peer may be sent.
func (p *pace) wait(from peer.ID, n int) error {
	p.mu.Lock()
	t := p.turns[from]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		p.turns[from] = t
	}
	t.waiting++
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			delete(p.turns, from)
		}
	}()
	select {
	case t.taken <- struct{}{}:
	case <-p.ctx.Done():
		return p.ctx.Err()
	}
	defer func() { <-t.taken }()
	return p.limiter.WaitN(p.ctx, n)
}
