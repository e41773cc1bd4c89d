package memory

import (
	"time"

	"pnode/swarm/transport"
)

// piece has its turn on a line at once: bytes of a stream, the end of a direction, or both.
type piece struct {
	to    *Stream // the receiving end
	bytes []byte
	end   bool
	// cut, if not nil, ends the direction at once, stop asks the receiver to end the other one.
	cut, stop *transport.Code

	sent, arrives time.Time
}

// send has pieces take their turns, as long as the line is free. Callers hold mu.
func (c *Conn) send() {
	for c.err == nil && c.pump == nil && c.waits() {
		now := time.Now()
		switch {
		case !c.out.Open(), c.unacked > window && !c.peer.out.Open():
			c.pause = min(max(2*c.pause, 2*c.stats.SmoothedRTT, leastPause), mostPause)
			c.sendAfter(c.pause)
		case c.free.After(now):
			c.sendAfter(c.free.Sub(now))
		default:
			c.pause, c.unacked = 0, 0
			c.launch(now, c.take())
		}
	}
}

// sendAfter has send called after a time.
func (c *Conn) sendAfter(d time.Duration) {
	c.pump = time.AfterFunc(d, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.pump = nil
		c.send()
	})
}

// waits reports whether something is to be sent.
func (c *Conn) waits() bool {
	if len(c.control) > 0 {
		return true
	}
	for _, streams := range c.ready {
		if len(streams) > 0 {
			return true
		}
	}
	return false
}

// take returns the piece that goes next.
func (c *Conn) take() piece {
	if len(c.control) > 0 {
		p := c.control[0]
		c.control = c.control[1:]
		return p
	}
	for u, streams := range c.ready {
		if len(streams) == 0 {
			continue
		}
		s := streams[0]
		c.ready[u] = streams[1:]
		s.queued = false
		return s.next()
	}
	return piece{}
}

// launch puts a piece on the line.
func (c *Conn) launch(now time.Time, p piece) {
	bytes := len(p.bytes) + overheadBytes
	p.sent = now
	c.free, p.arrives = c.out.carry(now, bytes)
	c.stats.BytesSent += uint64(bytes)
	c.stats.PacketsSent++
	if n := len(c.flight); n > 0 && c.flight[n-1].arrives.After(p.arrives) {
		p.arrives = c.flight[n-1].arrives // bytes keep their order
	}
	c.flight = append(c.flight, p)
	if len(c.flight) > 1 {
		return
	}
	if wait := p.arrives.Sub(now); c.landing == nil {
		c.landing = time.AfterFunc(wait, c.land)
	} else {
		c.landing.Reset(wait)
	}
}

// land hands over what has arrived.
func (c *Conn) land() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for len(c.flight) > 0 && !c.flight[0].arrives.After(now) {
		p := c.flight[0]
		c.flight = c.flight[1:]
		if !c.reach(now) {
			c.flight = nil
			return
		}
		c.peer.stats.BytesReceived += uint64(len(p.bytes) + overheadBytes)
		p.to.take(p)
		c.acknowledged(now, p)
	}
	if len(c.flight) > 0 {
		c.landing.Reset(c.flight[0].arrives.Sub(now))
	}
}

// acknowledged notes what this end learns of a piece that has arrived. The acknowledgement's own way is counted, not waited for.
func (c *Conn) acknowledged(now time.Time, p piece) {
	if c.err != nil {
		return
	}
	if !c.peer.out.Open() {
		c.unacked += uint64(len(p.bytes))
		return
	}
	c.heard = now
	c.peer.stats.BytesSent += ackBytes
	s := &c.stats
	s.BytesReceived += ackBytes
	s.LatestRTT = now.Sub(p.sent) + c.peer.out.Latency()
	s.MinRTT = min(s.MinRTT, s.LatestRTT)
	s.MeanDeviation += ((s.SmoothedRTT - s.LatestRTT).Abs() - s.MeanDeviation) / 4
	s.SmoothedRTT += (s.LatestRTT - s.SmoothedRTT) / 8
}
