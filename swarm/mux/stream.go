package mux

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"pnode/swarm/transport"
)

// bufferBytes is how much a stream takes over from Write before it is sent.
const bufferBytes = maxData

var errClosedStream = errors.New("mux: write on a closed stream")

// stream is one stream. The connection's mu guards all of it but the first block.
type stream struct {
	conn    *Conn
	ours    bool
	reading *transport.Waiting
	writing *transport.Waiting

	id       uint32 // 0 until its first frame is written
	accepted bool
	urgency  int
	queued   bool // in Conn.ready
	control  bool // in Conn.control

	// sending
	buffer   queue  // goes before pending
	pending  []byte // the rest of what Write is called with
	sent     uint64
	limit    uint64
	writeErr *transport.StreamError
	closed   bool // by Close
	resetDue bool
	outEnded bool // END or RESET was written

	// receiving
	in        queue
	window    window
	readErr   *transport.StreamError
	stopDue   bool
	windowDue bool
	inEnded   bool // END or RESET has come
	eof       bool // all was read
}

func newStream(c *Conn, ours bool) *stream {
	s := &stream{
		conn: c, ours: ours, reading: transport.NewWaiting(), writing: transport.NewWaiting(), accepted: ours,
		urgency: urgencyFirst, limit: streamWindow, window: newWindow(streamWindow, maxStreamWindow),
	}
	if c.cfg.FixedWindows {
		s.window.max = streamWindow
	}
	s.window.looked = time.Now()
	return s
}

// Read implements transport.Stream.
func (s *stream) Read(p []byte) (n int, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if s.readErr == nil && s.inEnded && s.in.bytes == 0 {
			s.eof = true
		}
		switch {
		case s.eof:
			return 0, io.EOF
		case s.readErr != nil:
			return 0, s.readErr
		case c.err != nil:
			return 0, c.err
		case s.reading.Late():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		}
		if s.in.bytes > 0 {
			break
		}
		s.reading.Wait(&c.mu, c.ctx.Done())
	}
	for n < len(p) && s.in.bytes > 0 {
		from := s.in.front()
		c.mu.Unlock() // what is copied stays where it is: only this call takes it off
		m := copy(p[n:], from)
		c.mu.Lock()
		n += m
		if s.readErr != nil { // the queue was dropped meanwhile
			return n, nil
		}
		s.in.skip(m)
		s.window.read += uint64(m)
		c.consumed(m)
	}
	if !s.inEnded && !s.windowDue && s.window.due() {
		s.windowDue = true
		c.attend(s)
	}
	return n, nil
}

// consumed counts bytes that take no room any more. Callers hold mu.
func (c *Conn) consumed(n int) {
	c.in.read += uint64(n)
	if !c.inDue && c.in.due() {
		c.inDue = true
		c.stir()
	}
}

// attend has the writer look at a stream's control frames. Callers hold mu.
func (c *Conn) attend(s *stream) {
	if !s.control && c.err == nil {
		s.control = true
		c.control = append(c.control, s)
		c.stir()
	}
}

// offer has the writer look at a stream's bytes. Callers hold mu.
func (c *Conn) offer(s *stream) {
	if !s.queued && c.err == nil && s.sendable() {
		s.queued = true
		c.ready[s.urgency] = append(c.ready[s.urgency], s)
		c.stir()
	}
}

// sendable reports whether the stream has DATA or END to send, as far as its window goes.
func (s *stream) sendable() bool {
	unsent := s.unsent()
	return !s.outEnded && s.writeErr == nil && (unsent > 0 && s.sent < s.limit || unsent == 0 && s.closed)
}

func (s *stream) unsent() int { return s.buffer.bytes + len(s.pending) }

// Write implements transport.Stream. It returns when all but at most 16 KiB was given to the socket.
func (s *stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	s.pending = p
	for first := true; ; first = false {
		var err error
		switch {
		case s.writeErr != nil:
			err = s.writeErr
		case c.err != nil:
			err = c.err
		case first && s.closed:
			err = errClosedStream
		case (first || len(s.pending) > 0) && s.writing.Late():
			err = os.ErrDeadlineExceeded
		}
		if err != nil && (first || len(s.pending) > 0) {
			n := len(p) - len(s.pending)
			s.pending = nil
			return n, err
		}
		s.absorb()
		c.offer(s)
		if len(s.pending) == 0 {
			return len(p), nil
		}
		s.writing.Wait(&c.mu, c.ctx.Done())
	}
}

// absorb takes the rest of what Write is called with over, if there is room.
func (s *stream) absorb() {
	if len(s.pending) > 0 && s.buffer.bytes+len(s.pending) <= bufferBytes {
		s.buffer.push(s.pending)
		s.pending = nil
	}
}

// take appends the next n bytes to b.
func (s *stream) take(b []byte, n int) []byte {
	s.sent += uint64(n)
	for n > 0 && s.buffer.bytes > 0 {
		from := s.buffer.front()
		from = from[:min(n, len(from))]
		b = append(b, from...)
		s.buffer.skip(len(from))
		n -= len(from)
	}
	if n > 0 {
		b = append(b, s.pending[:n]...)
		s.pending = s.pending[n:]
	}
	if len(s.pending) > 0 {
		s.absorb()
	}
	if len(s.pending) == 0 {
		s.pending = nil
		s.writing.Changed()
	}
	return b
}

// Close implements transport.Stream.
func (s *stream) Close() error {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed || c.err != nil {
		return nil
	}
	s.closed = true
	if s.writeErr != nil {
		return s.writeErr
	}
	c.offer(s)
	return nil
}

// CancelRead implements transport.Stream.
func (s *stream) CancelRead(code transport.Code) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.readErr != nil || s.eof || c.err != nil {
		return
	}
	s.cutIn(&transport.StreamError{Code: code})
	if !s.inEnded {
		s.stopDue = true
		c.attend(s)
	}
}

// cutIn ends the peer's direction for who reads. Callers hold mu.
func (s *stream) cutIn(err *transport.StreamError) {
	if s.readErr == nil {
		s.readErr = err
	}
	s.windowDue = false
	s.conn.consumed(s.in.drop())
	s.reading.Changed()
}

// CancelWrite implements transport.Stream.
func (s *stream) CancelWrite(code transport.Code) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.outEnded && s.writeErr == nil && c.err == nil {
		s.cutOut(&transport.StreamError{Code: code})
	}
}

// cutOut ends this end's direction with RESET. Callers hold mu.
func (s *stream) cutOut(err *transport.StreamError) {
	s.writeErr = err
	s.buffer.drop()
	s.resetDue = true
	s.conn.attend(s)
	s.writing.Changed()
}

// SetUrgency implements transport.Stream.
func (s *stream) SetUrgency(urgency int8) {
	c := s.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.queued {
		queue := &c.ready[s.urgency]
		*queue = slices.DeleteFunc(*queue, func(other *stream) bool { return other == s })
		s.queued = false
	}
	s.urgency = int(min(max(urgency, 0), urgencies-1))
	c.offer(s)
}

// SetDeadline implements transport.Stream.
func (s *stream) SetDeadline(t time.Time) error {
	s.SetReadDeadline(t)
	return s.SetWriteDeadline(t)
}

// SetReadDeadline implements transport.Stream.
func (s *stream) SetReadDeadline(t time.Time) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.reading.SetDeadline(t)
	return nil
}

// SetWriteDeadline implements transport.Stream.
func (s *stream) SetWriteDeadline(t time.Time) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.writing.SetDeadline(t)
	return nil
}

// settle removes a stream of which both directions have ended. Callers hold mu.
func (c *Conn) settle(s *stream) {
	if !s.inEnded || !s.outEnded || c.streams[s.id] != s {
		return
	}
	delete(c.streams, s.id)
	if s.ours {
		c.outgoing--
		c.announce()
		return
	}
	c.incoming--
	if !s.accepted {
		c.accepts = slices.DeleteFunc(c.accepts, func(other *stream) bool { return other == s })
	}
}
