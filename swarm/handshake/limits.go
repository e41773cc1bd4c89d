package handshake

import (
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/swarm/admission"
	"pnode/swarm/places"
	"pnode/swarm/streams"
)

const (
	// helloTime bounds how long a peer takes to send its hello once it has opened a stream for it. The verdict may take
	// longer: at most admission.TimeLimit.
	helloTime = 2 * time.Second
	// strangersGreetings is how many greetings of strangers are under way at once, greetingsPerIP those of one address.
	strangersGreetings = 64
	greetingsPerIP     = 8
	// keptGreetings are more, for members and for peers that are known.
	keptGreetings = 64
)

// limits hold the greetings that are answered now: one of a peer, few of an address of strangers.
type limits struct {
	room *places.Places
	kept chan struct{}
	// mu guards greeting, the peers whose greetings are under way.
	mu       sync.Mutex
	greeting map[peer.ID]bool
}

func newLimits() *limits {
	return &limits{
		room: places.New(strangersGreetings, greetingsPerIP), kept: make(chan struct{}, keptGreetings), greeting: map[peer.ID]bool{},
	}
}

// enter takes a place for a peer's greeting, and reports whether there was one; leave gives it back. A peer that is
// turned away asks again soon.
func (l *limits) enter(p peer.ID, known bool, from network.ConnMultiaddrs) (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.greeting[p] {
		return nil, false
	}
	give, ok := l.place(known, address(from))
	if !ok {
		return nil, false
	}
	l.greeting[p] = true
	return func() {
		give()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.greeting, p)
	}, true
}

// place takes a place that is kept for known peers, or one of an address.
func (l *limits) place(known bool, at netip.Addr) (give func(), ok bool) {
	if known {
		select {
		case l.kept <- struct{}{}:
			return func() { <-l.kept }, true
		default:
		}
	}
	if l.room.Take(at) {
		return func() { l.room.Give(at) }, true
	}
	return nil, false
}

// address returns where a connection comes from; zero over a relay.
func address(c network.ConnMultiaddrs) netip.Addr {
	ip, err := manet.ToIP(c.RemoteMultiaddr())
	if err != nil {
		return netip.Addr{}
	}
	at, _ := netip.AddrFromSlice(ip)
	return at
}

// known reports whether places are kept for a peer: a member, or one that this node has met or heard of.
func (g *Greeter) known(p peer.ID) bool {
	_, met := g.Store.Capability(p)
	return met || g.Peers.Member(p) || g.Known != nil && g.Known(p)
}

// enter takes a place for a greeting, or resets its stream. ok reports which; leave gives the place back.
func (g *Greeter) enter(st network.Stream) (leave func(), ok bool) {
	if !g.Tasks.Enter() {
		st.Reset()
		return nil, false
	}
	p := st.Conn().RemotePeer()
	give, ok := g.limits.enter(p, g.known(p), st.Conn())
	if !ok {
		g.Log.Debug("swarm: no place for a greeting", "peer", p, "addr", st.Conn().RemoteMultiaddr())
		st.Reset()
		g.Tasks.Leave()
		return nil, false
	}
	return func() {
		give()
		g.Tasks.Leave()
	}, true
}

// readFirst reads a peer's hello or claim, which must be there in time.
func readFirst(st network.Stream, limit int) ([]byte, error) {
	now := time.Now()
	if err := st.SetDeadline(now.Add(admission.TimeLimit)); err != nil {
		return nil, err
	}
	if err := st.SetReadDeadline(now.Add(helloTime)); err != nil {
		return nil, err
	}
	return streams.ReadMessage(st, limit)
}
