package alpn

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"pnode/planner/plan"
	"pnode/swarm/host"
	"pnode/swarm/transport"
)

// provedAddrs remembers where peers have proved their identity last, over each transport. Its methods may be called from any
// goroutine.
type provedAddrs struct {
	host *host.Host
	// mu guards addrs.
	mu    sync.Mutex
	addrs map[peer.ID]map[plan.Transport]provedAddr
}

// provedAddr says where a peer has proved its identity.
type provedAddr struct {
	addr      netip.AddrPort
	announced bool // by the peer, when it was dialed there
}

func newProvedAddrs(h *host.Host) *provedAddrs {
	return &provedAddrs{host: h, addrs: map[peer.ID]map[plan.Transport]provedAddr{}}
}

// remember notes where a peer has proved its identity: at the other end of a connection, which was dialed at an address unless
// that is nil, and of those that libp2p has. Who dials over QUIC does so from the port where it listens, over TCP from any.
func (p *provedAddrs) remember(conn transport.Conn, of peer.ID, dialed ma.Multiaddr) {
	announced := func(a ma.Multiaddr) bool { return slices.ContainsFunc(p.host.Peerstore().Addrs(of), a.Equal) }
	for _, c := range p.host.Network().ConnsToPeer(of) {
		a, out := c.RemoteMultiaddr(), c.Stat().Direction == network.DirOutbound
		at, err := endpoint(a)
		switch {
		case err != nil:
		case isQUIC(a):
			p.note(of, plan.QUIC, provedAddr{at, out && announced(a)})
		case out && p.host.TCP != nil && p.host.TCP.CanConnect(a):
			p.note(of, plan.TCP, provedAddr{at, announced(a)})
		}
	}
	if over := conn.Transport(); over == plan.QUIC || over == plan.TCP && dialed != nil {
		p.note(of, over, provedAddr{addrPort(conn.RemoteAddr()), dialed != nil && announced(dialed)})
	}
}

func (p *provedAddrs) note(of peer.ID, over plan.Transport, at provedAddr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.addrs[of][over]; old.addr == at.addr {
		at.announced = at.announced || old.announced
	}
	if p.addrs[of] == nil {
		p.addrs[of] = map[plan.Transport]provedAddr{}
	}
	p.addrs[of][over] = at
}

// listensAt returns the addresses at which a peer was reached last over each transport, if it announces that it listens there
// and did not only call from there.
func (p *provedAddrs) listensAt(of peer.ID) map[plan.Transport]netip.AddrPort {
	p.mu.Lock()
	proved := maps.Clone(p.addrs[of])
	p.mu.Unlock()
	out := map[plan.Transport]netip.AddrPort{}
	for over, at := range proved {
		announced := func(a ma.Multiaddr) bool {
			its, err := endpoint(a)
			return err == nil && its == at.addr && (over != plan.QUIC || isQUIC(a))
		}
		if at.announced || slices.ContainsFunc(p.host.Peerstore().Addrs(of), announced) {
			out[over] = at.addr
		}
	}
	return out
}
