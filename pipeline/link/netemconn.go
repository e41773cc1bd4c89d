package link

import (
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// NetemOptions describe the links of a socket.
type NetemOptions struct {
	// Seed decides losses and jitter.
	Seed uint64
	// Conditions hold for the link to every address that ByAddress does not name.
	Conditions LinkConditions
	ByAddress  map[netip.AddrPort][]TimedConditions
}

// TimedConditions hold from some time after the socket was made. Of several for one address the last one
// counts whose time has come; before all of them NetemOptions.Conditions do.
type TimedConditions struct {
	After time.Duration
	LinkConditions
}

// at returns the conditions of the link to an address so long after the start.
func (o NetemOptions) at(to netip.AddrPort, since time.Duration) LinkConditions {
	for _, s := range slices.Backward(o.ByAddress[to]) {
		if s.After <= since {
			return s.LinkConditions
		}
	}
	return o.Conditions
}

// NewNetemConn puts emulated links between a real socket and the addresses that it sends to: a packet
// leaves the socket when it would come out of the link. Each end of a link delays what it sends, so
// that both directions are emulated when both ends are. Closing it closes the socket.
func NewNetemConn(conn net.PacketConn, opt NetemOptions) net.PacketConn {
	s := &netemConn{PacketConn: conn, opt: opt, lines: map[netip.AddrPort]*line{}, begin: time.Now(), done: make(chan struct{})}
	go s.deliver()
	return s
}

// maxLines bounds the links that a socket remembers; beyond them it begins anew.
const maxLines = 1 << 12

// netemConn is a socket with links. It hides what else the socket can do, such as sending several
// packets with one call, which would go past the links.
type netemConn struct {
	net.PacketConn
	opt   NetemOptions
	begin time.Time
	done  chan struct{} // closed when deliver has ended

	waiting packets

	mu    sync.Mutex // guards lines
	lines map[netip.AddrPort]*line
}

// WriteTo never waits: a packet that has no room on its link is dropped.
func (s *netemConn) WriteTo(b []byte, to net.Addr) (int, error) {
	select {
	case <-s.done:
		return 0, net.ErrClosed
	default:
	}
	now, at := time.Now(), addressOf(to)
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()) // without the marks of IPv4 within IPv6
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lines[at]
	if l == nil {
		if len(s.lines) >= maxLines {
			clear(s.lines)
		}
		stream := uint64(at.Port())
		for _, b := range at.Addr().As16() {
			stream = stream*257 + uint64(b)
		}
		l = newLine(s.opt.Seed, stream)
		s.lines[at] = l
	}
	l.conditions = s.opt.at(at, now.Sub(s.begin))
	if due, ok := l.pass(now, len(b)); ok {
		s.waiting.put(b, to, due)
	}
	return len(b), nil
}

// deliver sends what is due until the socket is closed.
func (s *netemConn) deliver() {
	defer close(s.done)
	for {
		p, err := s.waiting.take()
		if err != nil {
			return
		}
		if _, err := s.PacketConn.WriteTo(p.data, p.other); errors.Is(err, net.ErrClosed) {
			return
		} // any other error is a packet lost on the way
	}
}

// Close drops what is on its way.
func (s *netemConn) Close() error {
	s.waiting.close()
	err := s.PacketConn.Close()
	<-s.done
	return err
}

// buffered is a socket whose buffers can be set.
type buffered interface {
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

// SetReadBuffer sets the socket's.
func (s *netemConn) SetReadBuffer(bytes int) error {
	if b, ok := s.PacketConn.(buffered); ok {
		return b.SetReadBuffer(bytes)
	}
	return nil
}

// SetWriteBuffer sets the socket's.
func (s *netemConn) SetWriteBuffer(bytes int) error {
	if b, ok := s.PacketConn.(buffered); ok {
		return b.SetWriteBuffer(bytes)
	}
	return nil
}

// packetConn is one end of the emulated network, a net.PacketConn. It has no goroutine: ReadFrom waits
// for the packet that is due next.
type packetConn struct {
	packets
	network *Emulated
	addr    netip.AddrPort
}

// ReadFrom waits for the next packet that comes out.
func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	p, err := c.take()
	return copy(b, p.data), p.other, err
}

// WriteTo never waits: a packet that has no room on its link, or goes to nobody, is dropped.
func (c *packetConn) WriteTo(b []byte, addr net.Addr) (int, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	to := addressOf(addr)
	c.network.change(c.addr, to, func(l *line) {
		receiver := c.network.conns[to]
		if c.network.conns[c.addr] == nil || receiver == nil {
			return
		}
		if due, ok := l.pass(time.Now(), len(b)); ok {
			receiver.put(b, c.LocalAddr(), due)
		}
	})
	return len(b), nil
}

// Close makes reads and writes fail with net.ErrClosed.
func (c *packetConn) Close() error {
	c.network.forget(c.addr)
	c.close()
	return nil
}

func (c *packetConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.addr) }

// Writes have no deadline, since they never wait, and buffers are what the conditions of a link say.
func (c *packetConn) SetWriteDeadline(time.Time) error { return nil }
func (c *packetConn) SetDeadline(t time.Time) error    { return c.SetReadDeadline(t) }
func (c *packetConn) SetReadBuffer(int) error          { return nil }
func (c *packetConn) SetWriteBuffer(int) error         { return nil }
