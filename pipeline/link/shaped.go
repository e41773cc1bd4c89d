package link

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// ShapedOptions say what the packets that a socket sends meet on their way.
type NetemOptions struct {
	// Seed decides losses and jitter.
	Seed uint64
	// Shape is that of the link to every address that Shapes does not name.
	Conditions LinkConditions
	ByAddress  map[netip.AddrPort][]TimedConditions
}

// TimedShape is a shape from some time after the socket was made. Of several for one address
// the last one counts whose time has come; before all of them ShapedOptions.Shape does.
type TimedConditions struct {
	After time.Duration
	LinkConditions
}

// at is the shape of the link to an address so long after the start.
func (o NetemOptions) at(to netip.AddrPort, since time.Duration) LinkConditions {
	for _, s := range slices.Backward(o.ByAddress[to]) {
		if s.After <= since {
			return s.LinkConditions
		}
	}
	return o.Conditions
}

// Shaped puts emulated links between a real socket and those it sends to: what is written
// leaves the socket when it would come out of the link. Each end of a link shapes what it
// sends, so both directions of a link are emulated when both ends are shaped. Closing it
// closes the socket.
func NewNetemConn(conn net.PacketConn, opt NetemOptions) net.PacketConn {
	s := &netemConn{PacketConn: conn, opt: opt, lines: map[netip.AddrPort]*line{}, begin: time.Now(), done: make(chan struct{})}
	go s.deliver()
	return s
}

// maxLines bounds the links that a socket remembers; beyond them it begins anew.
const maxLines = 1 << 12

// shaped is a socket with links. It hides what else the socket can do, such as sending
// several packets with one call, which would go past the links.
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
	now, at := time.Now(), plain(to)
	l := s.line(at)
	l.conditions = s.opt.at(at, now.Sub(s.begin))
	due, ok := l.pass(now, len(b))
	if ok && s.waiting.add(packet[net.Addr]{data: append([]byte(nil), b...), other: to, due: due}) {
		s.changed.wake()
	}
	return len(b), nil
}

// plain is an address without the marks of IPv4 within IPv6.
func plain(a net.Addr) netip.AddrPort {
	at := addressOf(a)
	return netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
}

// line gives the state of the link to an address, made on first use. Callers hold mu.
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

// due takes the packets that are due, or says how long to wait for a change.
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
