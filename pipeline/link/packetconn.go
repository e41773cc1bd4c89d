package link

import (
	"net"
	"os"
	"sync"
	"time"
)

// packetConn is one end of the emulated network, a net.PacketConn. It has no goroutine:
// who reads waits for the packet that is due next.
type packetConn struct {
	netem *netem
	addr  address

	mu       sync.Mutex // guards the rest
	packets  packets[address]
	deadline time.Time
	closed   bool
	changed  broadcast
}

func newPacketConn(a *netem, addr address) *packetConn { return &packetConn{netem: a, addr: addr} }

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

// next takes the packet that is due, or says how long to wait for a change: without end
// when wait is negative.
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

// SetReadBuffer and SetWriteBuffer do nothing: the shape of a link says what is buffered.
func (c *packetConn) SetReadBuffer(int) error { return nil }

// SetWriteBuffer is explained at SetReadBuffer.
func (c *packetConn) SetWriteBuffer(int) error { return nil }
