// Package virtual makes networks of simulated sockets, for tests in virtual time.
//
// A [Net] lives in one bubble of testing/synctest: datagrams take their time on its lines, and no time passes while anybody
// computes. A test decides which datagrams are lost, and so who is cut off from whom.
//
//	n := virtual.New(virtual.Line{Latency: 10 * time.Millisecond, BitsPerS: 20_000_000})
//	t.Cleanup(n.Close)
//	s, err := swarm.New(ctx, swarm.Config{Simulated: n.Host(), ...})
//
// [Net.Host] runs QUIC, TLS and libp2p's whole protocol over these sockets. [Net.Direct] makes connections without
// packets, where a test has many nodes and what they do counts, not how it travels.
package virtual

import (
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/marcopolo/simnet"
	ma "github.com/multiformats/go-multiaddr"
	"github.com/quic-go/quic-go"
	"go.uber.org/fx"

	"pnode/swarm/host"
)

// Every host listens on this port.
const port = 4001

// Line describes the way from each host to any other.
type Line struct {
	Latency  time.Duration // one way
	BitsPerS int           // each way
}

// Net hands out sockets, and hosts without them. Its methods are called from one goroutine; hosts may open their sockets from others.
type Net struct {
	// Loses, if not nil, says of each datagram whether it is lost, Delays by how much it is late. Both are set before the
	// first host, and called from any goroutine. Pieces of connections without packets have no datagram.
	Loses  func(from, to netip.Addr, datagram []byte) bool
	Delays func(from, to netip.Addr) time.Duration
	// Sent, if not nil, is told of the bytes that go from one host to another without packets. It is set as Loses is.
	Sent func(from, to netip.Addr, bytes int)
	// Closed, if not nil, reports whether the machine at an address says that nobody listens there. It is set as Loses is.
	Closed func(at netip.Addr) bool

	line    Line
	hosts   int
	mu      sync.Mutex // guards net, to which sockets are added, and directs
	net     *simnet.Simnet
	directs map[netip.AddrPort]*direct // hosts without packets
}

// New starts a network, until Close.
func New(line Line) *Net {
	n := &Net{line: line, directs: map[netip.AddrPort]*direct{}}
	n.net = &simnet.Simnet{LatencyFunc: n.latency, Logger: slog.New(slog.DiscardHandler)}
	n.net.Start()
	return n
}

// latency returns how long a packet is under way.
func (n *Net) latency(p *simnet.Packet) time.Duration {
	if n.Delays == nil {
		return n.line.Latency
	}
	return n.line.Latency + n.Delays(addrOf(p.From), addrOf(p.To))
}

func addrOf(a net.Addr) netip.Addr { return a.(*net.UDPAddr).AddrPort().Addr().Unmap() }

// closed reports whether the machine at an address says that nobody listens there.
func (n *Net) closed(at netip.AddrPort) bool { return n.Closed != nil && n.Closed(at.Addr()) }

// Close ends the network.
func (n *Net) Close() { n.net.Close() }

// Addr returns the address of the i-th host.
func Addr(i int) netip.Addr {
	addr, _ := netip.AddrFromSlice(simnet.IntToPublicIPv4(i))
	return addr.Unmap()
}

// next returns the address of one more host.
func (n *Net) next() netip.Addr {
	n.hosts++
	return Addr(n.hosts - 1)
}

// Socket returns a bare socket at an address of its own, with another rate than the line's.
func (n *Net) Socket(bitsPerS int) net.PacketConn {
	return n.listen(&net.UDPAddr{IP: n.next().AsSlice(), Port: port}, bitsPerS)
}

func (n *Net) listen(addr *net.UDPAddr, bitsPerS int) net.PacketConn {
	link := simnet.LinkSettings{BitsPerSecond: bitsPerS}
	n.mu.Lock()
	defer n.mu.Unlock()
	return lossy{n.net.NewEndpoint(addr, simnet.NodeBiDiLinkSettings{Downlink: link, Uplink: link}), addrOf(addr), n}
}

// Host returns what stands in for the sockets of one more host, at an address of its own. Processes may use it one after
// the other.
func (n *Net) Host() *host.Simulated {
	addr := n.next()
	return &host.Simulated{
		Listen: []ma.Multiaddr{ma.StringCast(fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", addr, port))},
		Closed: n.closed,
		QUIC: libp2p.QUICReuse(
			func(l fx.Lifecycle, reset quic.StatelessResetKey, token quic.TokenGeneratorKey, opts ...quicreuse.Option) (*quicreuse.ConnManager, error) {
				m, err := quicreuse.NewConnManager(reset, token, opts...)
				if err == nil {
					l.Append(fx.StopHook(m.Close))
				}
				return m, err
			},
			quicreuse.OverrideSourceIPSelector(func() (quicreuse.SourceIPSelector, error) { return source{addr.AsSlice()}, nil }),
			quicreuse.OverrideListenUDP(func(_ string, at *net.UDPAddr) (net.PacketConn, error) { return n.listen(at, n.line.BitsPerS), nil }),
		),
	}
}

// lossy is a socket that loses what the test says.
type lossy struct {
	net.PacketConn
	at netip.Addr
	on *Net
}

func (l lossy) WriteTo(b []byte, to net.Addr) (int, error) {
	if l.on.Loses != nil && l.on.Loses(l.at, addrOf(to), b) {
		return len(b), nil
	}
	return l.PacketConn.WriteTo(b, to)
}

// source answers every question for a route with the host's address.
type source struct{ ip net.IP }

func (s source) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) { return s.ip, nil }
