package swarm

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/event"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/diagnose"
	"pnode/swarm/host"
)

// observeTime bounds how long contacts are waited for to say what they see of this machine.
const observeTime = 500 * time.Millisecond

// Diagnose finds out whether this machine can join by an invite, within 15 s, without using the invite. progress, if not
// nil, hears which tests are under way.
func Diagnose(ctx context.Context, v admission.Invite, progress func(tests []string)) (diagnose.Report, error) {
	cfg := diagnose.Config{Addrs: v.Addrs, Progress: progress}
	if v.Entitles() {
		cfg.Claim = func(ctx context.Context) diagnose.Claimed { return claimed(ctx, v) }
	}
	return diagnose.Run(ctx, cfg)
}

// claimed claims an invite as somebody who does not come in by it. It asks no router for ports: it listens on loopback.
func claimed(ctx context.Context, v admission.Invite) (c diagnose.Claimed) {
	id, err := admission.NewIdentity()
	if err != nil {
		return diagnose.Claimed{Err: err}
	}
	h, end, err := claimHost(Config{Identity: id, Listen: []string{"127.0.0.1:0"}})
	if err != nil {
		return diagnose.Claimed{Err: err}
	}
	defer end() // its sockets are nobody's
	seen, err := h.EventBus().Subscribe(new(event.EvtPeerIdentificationCompleted), eventbus.Name("diagnose"))
	if err != nil {
		return diagnose.Claimed{Err: err}
	}
	defer seen.Close()
	if v, err = claimFrom(ctx, h, v); err != nil {
		return diagnose.Claimed{Err: err}
	}
	c.RedeemBefore = v.Grant.RedeemBefore
	c.Observed, c.Own = observed(h, seen), ownAddrs()
	return c
}

// observed returns where the contacts of a host see it, once each has said so.
func observed(h *host.Host, seen event.Subscription) (out []netip.AddrPort) {
	late := time.After(observeTime)
	for range h.Network().Conns() {
		select {
		case e := <-seen.Out():
			told, ok := e.(event.EvtPeerIdentificationCompleted)
			if !ok || told.ObservedAddr == nil || direct(told.Conn) == nil {
				continue
			}
			if at, ok := socketAddr(told.ObservedAddr); ok {
				out = append(out, at)
			}
		case <-late:
			return out
		}
	}
	return out
}

// direct returns the other end's address, nil over a relay.
func direct(c network.Conn) ma.Multiaddr {
	if c == nil || c.Stat().Limited {
		return nil
	}
	return c.RemoteMultiaddr()
}

// socketAddr returns the IP address and port at which an address begins.
func socketAddr(a ma.Multiaddr) (netip.AddrPort, bool) {
	_, port, err := manet.DialArgs(a)
	if err != nil {
		return netip.AddrPort{}, false
	}
	at, err := netip.ParseAddrPort(port)
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), err == nil
}

// ownAddrs returns the addresses of this machine's interfaces.
func ownAddrs() (out []netip.Addr) {
	addrs, _ := net.InterfaceAddrs() // none, where they cannot be read
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok {
			ip, _ := netip.AddrFromSlice(n.IP)
			out = append(out, ip.Unmap())
		}
	}
	return out
}

// ReachedOver returns the transport and the address over which this node is connected to one of the peers at
// addresses, the best of them; ok is false where it is connected to none.
func (s *Swarm) ReachedOver(addrs []string) (over plan.Transport, at string, ok bool) {
	infos, _ := admission.ParseAddrs(addrs) // none, of addresses that nobody can read
	for _, info := range infos {
		for _, c := range s.host.Network().ConnsToPeer(info.ID) {
			way := transportOf(c)
			if !ok || slices.Index(plan.Transports, way) < slices.Index(plan.Transports, over) {
				over, at, ok = way, c.RemoteMultiaddr().String(), true
			}
		}
	}
	return over, at, ok
}

// ReachedBy returns the best transport of the control connections with a member, "" without any.
func (s *Swarm) ReachedBy(p plan.PeerID) (best plan.Transport) {
	id, err := peer.Decode(string(p))
	if err != nil {
		return ""
	}
	for _, c := range s.host.Network().ConnsToPeer(id) {
		if over := transportOf(c); best == "" || over.Better(best) {
			best = over
		}
	}
	return best
}

// transportOf returns what carries a connection.
func transportOf(c network.Conn) plan.Transport {
	is := func(code int) bool {
		_, err := c.RemoteMultiaddr().ValueForProtocol(code)
		return err == nil
	}
	switch {
	case is(ma.P_CIRCUIT):
		return plan.Relay
	case is(ma.P_QUIC_V1):
		return plan.QUIC
	case is(ma.P_WS), is(ma.P_WSS):
		return plan.WebSocket
	}
	return plan.TCP
}
