// Package virtual makes networks of simulated sockets, for tests in virtual time.
//
// A [Net] lives in one bubble of testing/synctest: datagrams take their time on its lines, and no time passes while anybody
// computes. A test decides which datagrams are lost, and so who is cut off from whom.
//
//	n := virtual.New(virtual.Line{Latency: 10 * time.Millisecond, BitsPerS: 20_000_000})
//	t.Cleanup(n.Close)
//	s, err := swarm.New(ctx, swarm.Config{Simulated: n.Host(), ...})
package virtual

import (
	"fmt"
	"net"
	"net/netip"
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

// Net hands out sockets. Its methods are called from one goroutine.
type Net struct {
	// Loses, if not nil, says of each datagram whether it is lost. It is set before the first host, and called from
	// any goroutine.
	Loses func(from, to netip.Addr, datagram []byte) bool

	line  Line
	net   *simnet.Simnet
	hosts int
}

// New starts a network, until Close.
func New(line Line) *Net {
	n := &Net{line: line, net: &simnet.Simnet{LatencyFunc: func(*simnet.Packet) time.Duration { return line.Latency }}}
	n.net.Start()
	return n
}

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
	return lossy{n.net.NewEndpoint(addr, simnet.NodeBiDiLinkSettings{Downlink: link, Uplink: link}), addr.AddrPort().Addr().Unmap(), n}
}

// Host returns what stands in for the sockets of one more host, at an address of its own.
func (n *Net) Host() *host.Simulated {
	addr := n.next()
	return &host.Simulated{
		Listen: []ma.Multiaddr{ma.StringCast(fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", addr, port))},
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
	if l.on.Loses != nil && l.on.Loses(l.at, to.(*net.UDPAddr).AddrPort().Addr().Unmap(), b) {
		return len(b), nil
	}
	return l.PacketConn.WriteTo(b, to)
}

// source answers every question for a route with the host's address.
type source struct{ ip net.IP }

func (s source) PreferredSourceIPForDestination(*net.UDPAddr) (net.IP, error) { return s.ip, nil }
