package alpn

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"pnode/planner/plan"
	"pnode/swarm/admission"
	"pnode/swarm/host"
	"pnode/swarm/neterr"
)

// refusalTime bounds how long a host's word that a port is closed is waited for.
const refusalTime = 400 * time.Millisecond

// Refuses reports whether the host of a member says that nobody listens at the member's addresses: its process
// has ended, even if nobody had the time to say so. An operating system answers a datagram to a closed
// port with ICMP "port unreachable", which only a connected socket hears of, and a TCP connection with a reset. The
// member is asked where it has proved its identity before, over every transport that it did, if it announces the address:
// a NAT speaks for others. A firewall may refuse one transport alone, so those that were not tried lately are asked at the
// same host; other addresses may lead to another host here. One that is silent, a host that is off, or a network that is
// down leaves false, and so does an untried address that is a name.
func (t *Transport) Refuses(ctx context.Context, p plan.PeerID) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		return false
	}
	proved := t.proved.listensAt(id)
	for over, at := range proved {
		if over == plan.TCP && !refusesTCP(ctx, at.String()) || over == plan.QUIC && !refuses(ctx, t.Host.Simulated, at) {
			return false
		}
	}
	sameHost := func(a netip.AddrPort) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(proved)), func(at netip.AddrPort) bool { return at.Addr() == a.Addr() })
	}
	for _, over := range t.transports(id) {
		if _, asked := proved[over]; asked || t.Choice.FailedLately(p, over) {
			continue
		}
		for _, a := range t.candidates(id, over) {
			switch at, err := endpoint(a); {
			case err != nil:
				return false
			case !sameHost(at):
			case over == plan.QUIC && !refuses(ctx, t.Host.Simulated, at), over != plan.QUIC && !refusesTCP(ctx, at.String()):
				return false
			}
		}
	}
	return len(proved) > 0
}

// RefusesTCP is Refuses for TCP alone: at the port where the member proved its identity, or else at those that it announces
// for a host where it did over UDP. Hosts answer datagrams to closed ports with so much ICMP a second, and connections always.
func (t *Transport) RefusesTCP(ctx context.Context, p plan.PeerID) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		return false
	}
	proved := t.proved.listensAt(id)
	if at, ok := proved[plan.TCP]; ok {
		return refusesTCP(ctx, at.String())
	}
	asked := false
	for _, a := range t.candidates(id, plan.TCP) {
		at, err := endpoint(a)
		if err != nil || at.Addr() != proved[plan.QUIC].Addr() {
			continue
		}
		if asked = true; !refusesTCP(ctx, at.String()) {
			return false
		}
	}
	return asked
}

// endpoint returns the IP address and the port that an address begins with.
func endpoint(a ma.Multiaddr) (netip.AddrPort, error) {
	if len(a) < 2 {
		return netip.AddrPort{}, errNoAddress
	}
	at, err := manet.ToNetAddr(a[:2])
	if err != nil {
		return netip.AddrPort{}, err
	}
	return addrPort(at), nil
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

// refuses reports whether the host at a UDP address, simulated if that is not nil, says that the port is closed.
func refuses(ctx context.Context, simulated *host.Simulated, addr netip.AddrPort) bool {
	if simulated != nil {
		return simulated.Closed != nil && simulated.Closed(addr)
	}
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
// address that leads through another node. On a simulated network, if that is not nil, its machines are asked.
func NobodyListens(ctx context.Context, simulated *host.Simulated, addrs ...string) bool {
	infos, err := admission.ParseAddrs(addrs)
	if err != nil {
		return false
	}
	for _, info := range infos {
		for _, a := range info.Addrs {
			if !closed(ctx, simulated, a) {
				return false
			}
		}
	}
	return len(infos) > 0
}

// closed reports whether the machine at an address says that nobody listens there.
func closed(ctx context.Context, simulated *host.Simulated, a ma.Multiaddr) bool {
	if _, err := a.ValueForProtocol(ma.P_CIRCUIT); err == nil {
		return false
	}
	if port, err := manet.ToNetAddr(a.Decapsulate(ma.StringCast("/quic-v1"))); err == nil && port.Network() == "udp" {
		return refuses(ctx, simulated, addrPort(port))
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
