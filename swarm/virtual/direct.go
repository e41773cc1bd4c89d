package virtual

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
	"github.com/quic-go/quic-go"

	"pnode/swarm/host"
	"pnode/swarm/memory"
	"pnode/swarm/transport"
)

const (
	// dialTime bounds the handshake of a connection without packets, dialPause is the first pause between two tries.
	dialTime, dialPause = 5 * time.Second, 200 * time.Millisecond
	// maxQueued bounds the connections that wait for Accept.
	maxQueued = 64
	// noALPN says that a peer does not know an ALPN, as QUIC carries the alert of TLS (RFC 9001, 4.8).
	noALPN quic.TransportErrorCode = 0x100 + 120
)

// Direct returns what stands in for the sockets of one more host, as Host does, without packets: package memory makes its
// connections, libp2p's included. Such hosts reach one another alone.
func (n *Net) Direct() *host.Simulated {
	d := &direct{
		net: n, addr: netip.AddrPortFrom(n.next(), port), listeners: map[string]*listener{},
		up: memory.NewRate(n.line.BitsPerS), down: memory.NewRate(n.line.BitsPerS),
	}
	n.mu.Lock()
	n.directs[d.addr] = d
	n.mu.Unlock()
	return &host.Simulated{
		Listen: []ma.Multiaddr{multiaddr(d.addr)}, Closed: n.closed, Direct: d, Transport: d.transport,
	}
}

// multiaddr returns an address of QUIC: users of a connection take it for one.
func multiaddr(at netip.AddrPort) ma.Multiaddr {
	return ma.StringCast(fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", at.Addr(), at.Port()))
}

// direct is a host of connections without packets.
type direct struct {
	net       *Net
	addr      netip.AddrPort
	up, down  *memory.Rate
	mu        sync.Mutex // guards listeners
	listeners map[string]*listener
}

// listener takes a host's connections of one ALPN.
type listener struct {
	on    *direct
	alpn  string
	self  peer.ID
	queue chan incoming
	ended chan struct{} // closed by Close, while on.mu is held
}

// incoming is a connection that waits for Accept.
type incoming struct {
	*memory.Conn
	from peer.ID
}

// Listen implements host.Direct.
func (d *direct) Listen(alpn string, self peer.ID) (host.Listener, error) {
	return d.listen(alpn, self)
}

func (d *direct) listen(alpn string, self peer.ID) (*listener, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listeners[alpn] != nil {
		return nil, fmt.Errorf("%s listens for %s already", d.addr, alpn)
	}
	l := &listener{d, alpn, self, make(chan incoming, maxQueued), make(chan struct{})}
	d.listeners[alpn] = l
	return l, nil
}

// Accept implements host.Listener.
func (l *listener) Accept(ctx context.Context) (transport.Conn, peer.ID, error) {
	c, err := l.accept(ctx)
	if err != nil {
		return nil, "", err
	}
	return c.Conn, c.from, nil
}

func (l *listener) accept(ctx context.Context) (incoming, error) {
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.ended:
		return incoming{}, net.ErrClosed
	case <-ctx.Done():
		return incoming{}, ctx.Err()
	}
}

// Close implements host.Listener.
func (l *listener) Close() error {
	l.on.mu.Lock()
	defer l.on.mu.Unlock()
	if l.on.listeners[l.alpn] != l {
		return nil
	}
	delete(l.on.listeners, l.alpn)
	close(l.ended)
	for {
		select {
		case c := <-l.queue:
			c.Close(0, "")
		default:
			return nil
		}
	}
}

// Dial implements host.Direct.
func (d *direct) Dial(ctx context.Context, alpn string, self peer.ID, at ma.Multiaddr) (transport.Conn, peer.ID, error) {
	c, p, err := d.dial(ctx, alpn, self, at)
	if err != nil {
		return nil, "", err
	}
	return c, p, nil
}

// dial makes a connection, after a round trip in which nothing is lost.
func (d *direct) dial(ctx context.Context, alpn string, self peer.ID, at ma.Multiaddr) (*memory.Conn, peer.ID, error) {
	addr, err := manet.ToNetAddr(at.Decapsulate(quicV1))
	if err != nil {
		return nil, "", err
	}
	udp := addr.(*net.UDPAddr).AddrPort()
	d.net.mu.Lock()
	to := d.net.directs[netip.AddrPortFrom(udp.Addr().Unmap(), udp.Port())]
	d.net.mu.Unlock()
	if to == nil {
		return nil, "", fmt.Errorf("no host is at %s", at)
	}
	late := time.NewTimer(dialTime)
	defer late.Stop()
	wait := func(t time.Duration) error {
		select {
		case <-time.After(t):
			return nil
		case <-late.C:
			return &quic.HandshakeTimeoutError{}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	out, back := d.path(to), to.path(d)
	for pause := dialPause; ; pause *= 2 {
		if out.Open() && back.Open() {
			if err := wait(out.Latency() + back.Latency()); err != nil {
				return nil, "", err
			}
			if c, p, err := to.take(d, alpn, self); c != nil || err != nil {
				return c, p, err
			}
		}
		if err := wait(pause); err != nil {
			return nil, "", err
		}
	}
}

// take hands a connection to the listener of an ALPN. It returns none where nobody listens for anything.
func (d *direct) take(from *direct, alpn string, dialer peer.ID) (*memory.Conn, peer.ID, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.listeners[alpn]
	switch {
	case l == nil && len(d.listeners) == 0:
		return nil, "", nil
	case l == nil:
		return nil, "", &quic.TransportError{Remote: true, ErrorCode: noALPN}
	case len(l.queue) == maxQueued:
		return nil, "", &quic.TransportError{Remote: true, ErrorCode: quic.ConnectionRefused}
	}
	a, b := memory.Pair(memory.End{Addr: from.udp(), Out: from.path(d)}, memory.End{Addr: d.udp(), Out: d.path(from)})
	l.queue <- incoming{b, dialer}
	return a, l.self, nil
}

func (d *direct) udp() net.Addr { return net.UDPAddrFromAddrPort(d.addr) }

// path returns the way to another host.
func (d *direct) path(to *direct) memory.Path {
	from, at, n := d.addr.Addr(), to.addr.Addr(), d.net
	var sent func(int)
	if n.Sent != nil {
		sent = func(bytes int) { n.Sent(from, at, bytes) }
	}
	return memory.Path{
		Sent: sent,
		Latency: func() time.Duration {
			if n.Delays == nil {
				return n.line.Latency
			}
			return n.line.Latency + n.Delays(from, at)
		},
		Lost: func() bool { return n.Loses != nil && n.Loses(from, at, nil) },
		Up:   d.up, Down: to.down,
	}
}
