package alpn

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/neterr"
	"pnode/swarm/transport"
)

// refusalTime bounds how long a host's word that a port is closed is waited for.
const refusalTime = 400 * time.Millisecond

// Refuses reports whether the host of a member says that nobody listens at the member's addresses: its process
// has ended, even if nobody had the time to say so. An operating system answers a datagram to a closed
// port with ICMP "port unreachable", which only a connected socket hears of, and a TCP connection with a reset. The
// member is asked where it has proved its identity before, over every transport that it did: other addresses of it may
// lead to another host here, and a firewall may refuse one of the two. One that is silent, a host that is off, or a
// network that is down leaves false.
func (t *Transport) Refuses(ctx context.Context, p plan.PeerID) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		return false
	}
	asked := 0
	for over, at := range t.listensAt(id) {
		asked++
		if over == plan.TCP && !refusesTCP(ctx, at.String()) || over == plan.QUIC && !refuses(ctx, at) {
			return false
		}
	}
	return asked > 0
}

// listensAt returns the addresses at which p was reached last over each transport, if p listens there and did not only
// call from there.
func (t *Transport) listensAt(p peer.ID) map[plan.Transport]netip.AddrPort {
	t.mu.Lock()
	proved := maps.Clone(t.proved[p])
	t.mu.Unlock()
	out := map[plan.Transport]netip.AddrPort{}
	for over, at := range proved {
		announced := func(a ma.Multiaddr) bool {
			udp, err := manet.ToNetAddr(a.Decapsulate(ma.StringCast("/quic-v1")))
			return err == nil && addrPort(udp) == at.addr
		}
		if at.dialed || slices.ContainsFunc(t.candidates(p, over), announced) {
			out[over] = at.addr
		}
	}
	return out
}

// provedAddress says where a peer has proved its identity.
type provedAddress struct {
	addr   netip.AddrPort
	dialed bool // from here
}

// remember notes where p has proved its identity: at the other end of a connection, and where libp2p dialed it.
func (t *Transport) remember(conn transport.Conn, p peer.ID, dialed bool) {
	if over := conn.Transport(); over == plan.QUIC || over == plan.TCP && dialed {
		t.prove(p, over, provedAddress{addrPort(conn.RemoteAddr()), dialed})
	}
	for _, c := range t.Host.Network().ConnsToPeer(p) {
		if t.Host.TCP == nil || c.Stat().Direction != network.DirOutbound || !t.Host.TCP.CanConnect(c.RemoteMultiaddr()) {
			continue
		}
		if at, err := manet.ToNetAddr(c.RemoteMultiaddr()); err == nil {
			t.prove(p, plan.TCP, provedAddress{addrPort(at), true})
		}
	}
}

func (t *Transport) prove(p peer.ID, over plan.Transport, at provedAddress) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.proved[p][over]; old.addr == at.addr {
		at.dialed = at.dialed || old.dialed
	}
	if t.proved[p] == nil {
		t.proved[p] = map[plan.Transport]provedAddress{}
	}
	t.proved[p][over] = at
}

func addrPort(a net.Addr) netip.AddrPort {
	var at netip.AddrPort
	switch a := a.(type) {
	case *net.UDPAddr:
		at = a.AddrPort()
	case *net.TCPAddr:
		at = a.AddrPort()
	}
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// refuses reports whether the host at a UDP address says that the port is closed.
func refuses(ctx context.Context, addr netip.AddrPort) bool {
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "udp", addr.String())
	if err != nil {
		return false
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	defer context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })()
	for range 2 { // of which one may be lost
		if _, err = conn.Write([]byte{0}); err == nil {
			conn.SetReadDeadline(time.Now().Add(refusalTime / 2))
			_, err = conn.Read(make([]byte, 1))
		}
		if neterr.DatagramRefused(err) {
			return true
		}
	}
	return false
}

// NobodyListens reports whether the machine at every one of the addresses, each with /p2p/, says that nobody
// listens there. A machine that is silent, as one that is off or behind a firewall, leaves false, as does an
// address that leads through another node.
func NobodyListens(ctx context.Context, addrs ...string) bool {
	infos, err := admission.ParseAddrs(addrs)
	if err != nil {
		return false
	}
	for _, info := range infos {
		for _, a := range info.Addrs {
			if !closed(ctx, a) {
				return false
			}
		}
	}
	return len(infos) > 0
}

// closed reports whether the machine at an address says that nobody listens there.
func closed(ctx context.Context, a ma.Multiaddr) bool {
	if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err == nil {
		return false
	}
	if port, err := manet.ToNetAddr(a.Decapsulate(ma.StringCast("/quic-v1"))); err == nil && port.Network() == "udp" {
		return refuses(ctx, addrPort(port))
	}
	port, err := manet.ToNetAddr(a)
	if err != nil || port.Network() != "tcp" {
		return false
	}
	return refusesTCP(ctx, port.String())
}

// refusesTCP reports whether the host at a TCP address says that the port is closed.
func refusesTCP(ctx context.Context, at string) bool {
	ctx, cancel := context.WithTimeout(ctx, refusalTime)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err == nil {
		conn.Close()
	}
	return neterr.Refused(err)
}
