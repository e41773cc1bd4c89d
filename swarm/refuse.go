package swarm

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
)

// refusalTime is how long a host's word that a port is closed is waited for.
const refusalTime = 400 * time.Millisecond

// Refuses tells whether the host of a member says that nobody listens at the member's
// address: its process has ended, even if nobody had the time to say so. An operating
// system answers a datagram to a closed port with ICMP "port unreachable", which only a
// connected socket hears of. Asked is where the member has proved its identity before,
// since other addresses of it may lead to another host here. A firewall or a host that is
// off leaves false, as does a network that is down.
func (d *Data) Refuses(ctx context.Context, p plan.PeerID) bool {
	id, err := peer.Decode(string(p))
	if err != nil {
		return false
	}
	addr, ok := d.lane.listensAt(id)
	return ok && refuses(ctx, addr)
}

// listensAt is the address at which p was reached last, if it is one on which p listens and
// not only one from which it once called.
func (l *lane) listensAt(p peer.ID) (netip.AddrPort, bool) {
	l.mu.Lock()
	at, known := l.proved[p]
	l.mu.Unlock()
	if !known || at.dialed {
		return at.addr, known
	}
	announced := func(a ma.Multiaddr) bool {
		udp, err := manet.ToNetAddr(a.Decapsulate(ma.StringCast("/quic-v1")))
		return err == nil && addrPort(udp) == at.addr
	}
	return at.addr, slices.ContainsFunc(l.candidates(p), announced)
}

// provedAddress is where a peer has proved its identity.
type provedAddress struct {
	addr   netip.AddrPort
	dialed bool // from here
}

// remember notes where p is.
func (l *lane) remember(conn *quic.Conn, p peer.ID, dialed bool) {
	addr := addrPort(conn.RemoteAddr())
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.proved[p]; old.addr == addr {
		dialed = dialed || old.dialed
	}
	l.proved[p] = provedAddress{addr, dialed}
}

func addrPort(a net.Addr) netip.AddrPort {
	udp, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	at := udp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

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
		if errors.Is(err, syscall.ECONNREFUSED) {
			return true
		}
	}
	return false
}
