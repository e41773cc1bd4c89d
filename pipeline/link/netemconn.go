package link

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
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

	mu      sync.Mutex // guards the rest
	lines   map[netip.AddrPort]*line
	waiting packets[net.Addr]
	closed  bool
	changed broadcast
}

// WriteTo never waits: a packet that has no room on its link is dropped.
func (s *netemConn) WriteTo(b []byte, to net.Addr) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return 0, net.ErrClosed
	}
	now, at := time.Now(), addressOf(to)
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port()) // without the marks of IPv4 within IPv6
	l := s.line(at)
	l.conditions = s.opt.at(at, now.Sub(s.begin))
	due, ok := l.pass(now, len(b))
	if ok && s.waiting.add(packet[net.Addr]{data: append([]byte(nil), b...), other: to, due: due}) {
		s.changed.wake()
	}
	return len(b), nil
}

// line returns the state of the link to an address, made on first use. Callers hold mu.
func (s *netemConn) line(to netip.AddrPort) *line {
	l := s.lines[to]
	if l == nil {
		if len(s.lines) >= maxLines {
			clear(s.lines)
		}
		address := to.Addr().As16()
		stream := uint64(to.Port())
		for _, b := range address {
			stream = stream*257 + uint64(b)
		}
		l = &line{random: rand.New(rand.NewPCG(s.opt.Seed, stream))}
		s.lines[to] = l
	}
	return l
}

// deliver sends what is due until the socket is closed.
func (s *netemConn) deliver() {
	defer close(s.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, wait, changed, closed := s.due(time.Now())
		if closed {
			return
		}
		for _, p := range due {
			if _, err := s.PacketConn.WriteTo(p.data, p.other); errors.Is(err, net.ErrClosed) {
				return
			} // any other error is a packet lost on the way
		}
		if len(due) > 0 {
			continue // sending took a while
		}
		timer.Reset(wait)
		select {
		case <-changed:
		case <-timer.C:
		}
	}
}

// due takes the packets that are due, or returns how long to wait for a change.
func (s *netemConn) due(now time.Time) (due []packet[net.Addr], wait time.Duration, changed <-chan struct{}, closed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	wait = time.Hour
	for until, ok := s.waiting.next(now); ok; until, ok = s.waiting.next(now) {
		if until > 0 {
			wait = until
			break
		}
		due = append(due, s.waiting.take())
	}
	return due, wait, s.changed.wait(), s.closed
}

// Close drops what is on its way.
func (s *netemConn) Close() error {
	s.mu.Lock()
	s.closed = true
	s.waiting.clear()
	s.changed.wake()
	s.mu.Unlock()
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
	netem *netem
	addr  address

	mu       sync.Mutex // guards the rest
	packets  packets[address]
	deadline time.Time
	closed   bool
	changed  broadcast
}

// push takes a packet that comes out later.
func (c *packetConn) push(p packet[address]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed && c.packets.add(p) {
		c.changed.wake()
	}
}

// ReadFrom waits for the next packet that comes out.
func (c *packetConn) ReadFrom(b []byte) (int, net.Addr, error) {
	for {
		p, wait, changed, err := c.next()
		if err != nil {
			return 0, nil, err
		}
		if changed == nil {
			return copy(b, p.data), net.UDPAddrFromAddrPort(p.other), nil
		}
		if wait < 0 {
			<-changed
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next takes the packet that is due, or returns how long to wait for a change: without end when wait is
// negative.
func (c *packetConn) next() (p packet[address], wait time.Duration, changed <-chan struct{}, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case c.closed:
		return p, 0, nil, net.ErrClosed
	case !c.deadline.IsZero() && !now.Before(c.deadline):
		return p, 0, nil, os.ErrDeadlineExceeded
	}
	wait = -1
	if !c.deadline.IsZero() {
		wait = c.deadline.Sub(now)
	}
	if due, ok := c.packets.next(now); ok {
		if due <= 0 {
			return c.packets.take(), 0, nil, nil
		}
		if wait < 0 || due < wait {
			wait = due
		}
	}
	return p, wait, c.changed.wait(), nil
}

// WriteTo never waits: a packet that has no room on its link is dropped.
func (c *packetConn) WriteTo(b []byte, to net.Addr) (int, error) {
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		return 0, net.ErrClosed
	}
	c.netem.send(direction{c.addr, addressOf(to)}, b)
	return len(b), nil
}

// Close makes reads and writes fail with net.ErrClosed.
func (c *packetConn) Close() error {
	c.netem.forget(c.addr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.packets.clear()
	c.changed.wake()
	return nil
}

func (c *packetConn) LocalAddr() net.Addr { return net.UDPAddrFromAddrPort(c.addr) }

func (c *packetConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	c.changed.wake()
	return nil
}

// SetWriteDeadline does nothing: WriteTo never waits.
func (c *packetConn) SetWriteDeadline(time.Time) error { return nil }

func (c *packetConn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadBuffer does nothing: the conditions of a link say what is buffered.
func (c *packetConn) SetReadBuffer(int) error { return nil }

// SetWriteBuffer does nothing, too.
func (c *packetConn) SetWriteBuffer(int) error { return nil }
