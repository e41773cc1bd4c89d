package mux

import (
	"slices"
	"time"
)

// writeLoop writes records until the connection has ended, the last one with the farewell.
func (c *Conn) writeLoop() {
	record := append(make([]byte, 0, recordBytes), preface...)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		c.mu.Lock()
		record = c.fill(record, time.Now())
		ended := c.err != nil
		if ended {
			record = append(record, c.farewell...)
		}
		next := c.nextPing()
		c.mu.Unlock()
		if len(record) > 0 {
			c.sent.Add(uint64(len(record)))
			if _, err := c.conn.Write(record); err != nil {
				c.broken(err)
				return
			}
			c.wrote()
			record = record[:0]
		} else if !ended {
			timer.Reset(time.Until(next))
			select {
			case <-c.wake:
			case <-timer.C:
			}
		}
		if ended {
			return
		}
	}
}

// fill appends what is to be sent next, up to a record. Callers hold mu.
func (c *Conn) fill(b []byte, now time.Time) []byte {
	if c.err != nil {
		return b
	}
	b = c.pings.appendPongs(b, c.received.Load(), now)
	if !now.Before(c.nextPing()) {
		b = c.pings.appendPing(b, now, c.outSent)
	}
	if c.inDue {
		c.inDue = false
		b = appendNumber(b, kindWindow, 0, c.in.renew(now, c.pings.smoothed()))
	}
	for len(c.control) > 0 && recordBytes-len(b) >= 3*controlBytes {
		s := c.control[0]
		c.control = c.control[1:]
		s.control = false
		b = c.appendControl(b, s, now)
	}
	if len(c.control) == 0 {
		c.control = nil
	}
	for u := range c.ready {
		for i := 0; i < len(c.ready[u]); {
			room := min(c.pings.record()-len(b)-headerBytes, c.pings.room(c.sent.Load()+uint64(len(b))))
			if room < headerBytes {
				return b
			}
			s := c.ready[u][i]
			if c.outSent == c.outLimit && s.unsent() > 0 && s.sendable() {
				i++ // the connection's window is full
				continue
			}
			c.ready[u] = slices.Delete(c.ready[u], i, i+1)
			if s.queued = false; !s.sendable() {
				continue
			}
			b = c.appendData(b, s, int(min(uint64(room), uint64(s.unsent()), s.limit-s.sent, c.outLimit-c.outSent)))
			c.offer(s)
		}
	}
	return b
}

// appendControl appends a stream's RESET, STOP and WINDOW. Callers hold mu.
func (c *Conn) appendControl(b []byte, s *stream, now time.Time) []byte {
	if s.resetDue {
		s.resetDue, s.outEnded = false, true
		b = appendNumber(b, kindReset, c.name(s), uint64(s.writeErr.Code))
	}
	if s.stopDue {
		s.stopDue = false
		b = appendNumber(b, kindStop, c.name(s), uint64(s.readErr.Code))
	}
	if s.windowDue && !s.inEnded {
		s.windowDue = false
		size := s.window.size
		b = appendNumber(b, kindWindow, c.name(s), s.window.renew(now, c.pings.smoothed()))
		if s.window.size > size { // one stream alone must not be held up by the connection's
			c.in.size = min(max(c.in.size, s.window.size/2*3), c.in.max)
		}
	}
	c.settle(s)
	return b
}

// appendData appends n bytes of a stream, and END if they are the last ones. Callers hold mu.
func (c *Conn) appendData(b []byte, s *stream, n int) []byte {
	if n > 0 {
		b = appendHeader(b, header{kind: kindData, length: n, stream: c.name(s)})
		b = s.take(b, n)
		c.outSent += uint64(n)
	}
	if s.closed && !s.outEnded && s.unsent() == 0 && recordBytes-len(b) >= headerBytes {
		b = appendHeader(b, header{kind: kindEnd, stream: c.name(s)})
		s.outEnded = true
		c.settle(s)
	}
	return b
}

// name returns the stream's ID, its first frame's if it has none yet: the line sees IDs in ascending order. Callers
// hold mu.
func (c *Conn) name(s *stream) uint32 {
	if s.id == 0 {
		s.id = c.nextOut
		c.nextOut += 2
		c.streams[s.id] = s
	}
	return s.id
}

// nextPing returns when the next PING is due. Callers hold mu.
func (c *Conn) nextPing() time.Time {
	return c.pings.next(c.outSent, c.outgoing+c.incoming > 0)
}

// wrote notes that the socket has taken the record.
func (c *Conn) wrote() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pings.fresh {
		c.pings.left(time.Now(), c.socket)
	}
}
