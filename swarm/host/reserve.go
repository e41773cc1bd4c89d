package host

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/protocol/circuitv2/client"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/swarm/admission"
)

const (
	// relaysWanted is through how many members a node wants to be reached. One may go at any time.
	relaysWanted = 2
	// RelayTag protects them in libp2p's connection manager.
	RelayTag = "pnode relay"
	// reserveTime bounds the request for a reservation, reserveRetry is when a member that gave none is asked again.
	reserveTime  = 5 * time.Second
	reserveRetry = 30 * time.Second
	// renewBefore is how long before its end a reservation is renewed. Members give an hour.
	renewBefore = 20 * time.Minute
	reserveTick = 15 * time.Second
	// addrsPerRelay bounds the addresses through one relay: the one that was dialed, and its like on another transport.
	addrsPerRelay = 2
)

// reserver keeps a node reachable through members, from its first second in the run on: it reserves a place with members
// that it dialed itself, which others can then dial too. Where those are too few it reserves with members that dialed it:
// all who are connected to one reach this node through it when their own way here is cut, be it at a public address or not.
type reserver struct {
	host  host.Host
	own   *ownAddrs
	peers *admission.Peers
	log   *slog.Logger
	// wake holds one element when a connection came or went.
	wake chan struct{}
	// The goroutine of run has the rest. held are the reservations, failed is when a member gave none.
	held   map[peer.ID]time.Time
	failed map[peer.ID]time.Time
	said   []ma.Multiaddr
}

func newReserver(h host.Host, own *ownAddrs, peers *admission.Peers, log *slog.Logger) *reserver {
	r := &reserver{
		host: h, own: own, peers: peers, log: log, wake: make(chan struct{}, 1),
		held: map[peer.ID]time.Time{}, failed: map[peer.ID]time.Time{},
	}
	hurry := func(network.Network, network.Conn) {
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	h.Network().Notify(&network.NotifyBundle{ConnectedF: hurry, DisconnectedF: hurry})
	return r
}

// run reserves and renews until ctx ends.
func (r *reserver) run(ctx context.Context) {
	announce, err := r.host.EventBus().Emitter(new(event.EvtAutoRelayAddrsUpdated), eventbus.Stateful)
	if err != nil {
		r.log.Warn("swarm: no addresses through relays", "err", err)
		return
	}
	defer announce.Close()
	tick := time.NewTicker(reserveTick)
	defer tick.Stop()
	for {
		changed := r.peers.Changed()
		r.reserve(ctx)
		addrs := r.addrs()
		if !slices.EqualFunc(addrs, r.said, ma.Multiaddr.Equal) {
			r.said = addrs
			r.own.reachedThrough(addrs)
			r.log.Info("swarm: reached through relays", "addrs", addrs)
			if err := announce.Emit(event.EvtAutoRelayAddrsUpdated{RelayAddrs: slices.Clone(addrs)}); err != nil {
				r.log.Debug("swarm: announce addresses through relays", "err", err)
			}
		}
		select {
		case <-changed:
		case <-r.wake:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// reserve drops reservations whose relay is gone, and asks for others while there are too few.
func (r *reserver) reserve(ctx context.Context) {
	now := time.Now()
	for p, until := range r.held {
		if !until.After(now) || direct(r.host, p) == nil || !r.peers.Member(p) {
			delete(r.held, p)
			r.host.ConnManager().Unprotect(p, RelayTag)
		}
	}
	for p, at := range r.failed {
		if now.Sub(at) > reserveRetry {
			delete(r.failed, p)
		}
	}
	for p, until := range r.held {
		if until.Sub(now) < renewBefore && r.failed[p].IsZero() {
			r.ask(ctx, p)
		}
	}
	for _, p := range r.candidates() {
		if r.wants(p) {
			r.ask(ctx, p)
		}
	}
}

// wants reports whether there are too few reservations without a candidate's. Those with members that dialed this node
// do not count for one that it dialed.
func (r *reserver) wants(p peer.ID) bool {
	there := 0
	for other := range r.held {
		if outbound(direct(r.host, other)) || !outbound(direct(r.host, p)) {
			there++
		}
	}
	return there < relaysWanted
}

// candidates lists members that may give a reservation, those that this node dialed at public addresses first, those
// that dialed it last.
func (r *reserver) candidates() (out []peer.ID) {
	rank := map[peer.ID]int{}
	for _, c := range r.peers.Members() {
		p := c.ID()
		conn := direct(r.host, p)
		if _, held := r.held[p]; held || conn == nil || !r.failed[p].IsZero() {
			continue
		}
		switch {
		case !outbound(conn):
			rank[p] = 2
		case !manet.IsPublicAddr(conn.RemoteMultiaddr()):
			rank[p] = 1
		}
		out = append(out, p)
	}
	slices.SortStableFunc(out, func(a, b peer.ID) int { return rank[a] - rank[b] })
	return out
}

// ask requests a reservation, or a longer one.
func (r *reserver) ask(ctx context.Context, p peer.ID) {
	ctx, cancel := context.WithTimeout(network.WithNoDial(ctx, "reservation"), reserveTime)
	defer cancel()
	given, err := client.Reserve(ctx, r.host, peer.AddrInfo{ID: p})
	if err != nil {
		r.failed[p] = time.Now()
		r.log.Debug("swarm: reserve with a relay", "peer", p, "err", err)
		return
	}
	r.held[p] = given.Expiration
	r.host.ConnManager().Protect(p, RelayTag)
}

// addrs returns this node's addresses through the relays, sorted.
func (r *reserver) addrs() (out []ma.Multiaddr) {
	for p := range r.held {
		conn := direct(r.host, p)
		if conn == nil {
			continue
		}
		at := conn.RemoteMultiaddr()
		var through []ma.Multiaddr
		if outbound(conn) { // else it may be a port that nobody listens at
			through = append(through, at)
		}
		known := r.host.Peerstore().Addrs(p)
		slices.SortFunc(known, byBytes) // else it is another one at each look
		for _, a := range known {
			if len(through) < addrsPerRelay && sameHost(a, at) && !slices.ContainsFunc(through, a.Equal) {
				through = append(through, a)
			}
		}
		for _, a := range through {
			out = append(out, a.Encapsulate(ma.StringCast("/p2p/"+p.String()+"/p2p-circuit")))
		}
	}
	out = admission.Acceptable(r.host.ID(), out) // a relay may say odd ones of itself
	slices.SortFunc(out, byBytes)
	return out
}

// byBytes orders addresses.
func byBytes(a, b ma.Multiaddr) int { return bytes.Compare(a.Bytes(), b.Bytes()) }

// sameHost reports whether a is a direct address at the IP address of b.
func sameHost(a, b ma.Multiaddr) bool {
	if circuit(a) {
		return false
	}
	x, err := manet.ToIP(a)
	if err != nil {
		return false
	}
	y, err := manet.ToIP(b)
	return err == nil && x.Equal(y)
}

// direct returns a connection to a peer, one that this node dialed if there is one; nil where one leads through a relay, as
// before both punched a hole.
func direct(h host.Host, p peer.ID) (out network.Conn) {
	for _, c := range h.Network().ConnsToPeer(p) {
		switch {
		case circuit(c.RemoteMultiaddr()):
			return nil
		case out == nil || outbound(c):
			out = c
		}
	}
	return out
}

// outbound reports whether this node dialed a connection, at an address where the peer listens.
func outbound(c network.Conn) bool { return c != nil && c.Stat().Direction == network.DirOutbound }

// circuit reports whether an address leads through a relay.
func circuit(a ma.Multiaddr) bool {
	_, err := a.ValueForProtocol(ma.P_CIRCUIT)
	return err == nil
}
