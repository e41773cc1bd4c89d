package memory

import (
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"pnode/swarm/transport"
)

var errClosedStream = errors.New("memory: write on a closed stream")

// Stream is one end of a stream. The connection's mu guards all of it but the first block.
type Stream struct {
	conn    *Conn
	peer    *Stream
	ours    bool // opened by this end
	reading *transport.Waiting
	writing *transport.Waiting

	known   bool // to AcceptStream
	ended   bool // both directions
	urgency int8
	queued  bool // in Conn.ready

	// sending
	out      []byte // taken over, and not yet on the line
	unread   int    // bytes taken over that the peer has not read
	writeErr *transport.StreamError
	closed   bool // by Close
	outEnded bool // the end is on the line

	// receiving
	in      []byte
	readErr *transport.StreamError
	inEnded bool // the end has come
	eof     bool // all was read
}

// newStream returns the end of a new stream that opens it.
func newStream(c *Conn) *Stream {
	end := func(c *Conn) *Stream {
		return &Stream{conn: c, reading: transport.NewWaiting(), writing: transport.NewWaiting(), urgency: urgencyFirst}
	}
	s := end(c)
	s.peer = end(c.peer)
	s.peer.peer, s.ours, s.known = s, true, true
	return s
}

// Read implements transport.Stream.
func (s *Stream) Read(p []byte) (n int, err error) {
	s.reading.Lock()
	defer s.reading.Unlock()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for {
		if s.readErr == nil && s.inEnded && len(s.in) == 0 {
			s.eof = true
		}
		switch {
		case s.eof:
			return 0, io.EOF
		case s.readErr != nil:
			return 0, s.readErr
		case s.conn.err != nil:
			return 0, s.conn.err
		case s.reading.Late():
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(s.in) > 0:
			n = copy(p, s.in)
			s.in = s.in[n:]
			s.peer.unread -= n
			s.peer.writing.Changed()
			return n, nil
		}
		s.reading.Wait(s.conn.mu, s.conn.ctx.Done())
	}
}

// Write implements transport.Stream.
func (s *Stream) Write(p []byte) (n int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	for {
		switch {
		case s.writeErr != nil:
			return n, s.writeErr
		case s.conn.err != nil:
			return n, s.conn.err
		case s.closed:
			return n, errClosedStream
		case s.writing.Late():
			return n, os.ErrDeadlineExceeded
		case len(p) == 0:
			return n, nil
		}
		if room := min(len(p), pieceBytes-len(s.out), streamWindow-s.unread); room > 0 {
			s.out = append(s.out, p[:room]...)
			p = p[room:]
			s.unread += room
			n += room
			s.queue()
			continue
		}
		s.writing.Wait(s.conn.mu, s.conn.ctx.Done())
	}
}

// queue has a stream take its turn if it has something to send. Callers hold mu.
func (s *Stream) queue() {
	if s.queued || s.outEnded || len(s.out) == 0 && !s.closed {
		return
	}
	s.queued = true
	s.conn.ready[s.urgency] = append(s.conn.ready[s.urgency], s)
	s.conn.send()
}

// next returns what a stream sends in its turn.
func (s *Stream) next() piece {
	p := piece{to: s.peer, bytes: s.out, end: s.closed}
	s.out = nil
	if s.closed {
		s.outEnded = true
		s.over()
	}
	s.writing.Changed()
	return p
}

// take takes in a piece that has come.
func (s *Stream) take(p piece) {
	if !s.known {
		s.known = true
		s.conn.accepts = append(s.conn.accepts, s)
		signal(s.conn.accepted)
	}
	switch {
	case p.stop != nil:
		s.cutOut(transport.StreamError{Remote: true, Code: *p.stop})
	case p.cut != nil:
		s.inEnded = true
		if s.readErr == nil && !s.eof {
			s.readErr = &transport.StreamError{Remote: true, Code: *p.cut}
		}
		s.in = nil
	case s.readErr == nil:
		s.in = append(s.in, p.bytes...)
		fallthrough
	default:
		s.inEnded = s.inEnded || p.end
	}
	s.over()
	s.reading.Changed()
}

// cutOut ends this end's direction at once, and tells the peer.
func (s *Stream) cutOut(why transport.StreamError) {
	if s.outEnded || s.conn.err != nil {
		return
	}
	if s.queued {
		ready := &s.conn.ready[s.urgency]
		*ready = slices.DeleteFunc(*ready, func(other *Stream) bool { return other == s })
		s.queued = false
	}
	s.writeErr, s.outEnded, s.out = &why, true, nil
	s.conn.control = append(s.conn.control, piece{to: s.peer, cut: &why.Code})
	s.over()
	s.writing.Changed()
	s.conn.send()
}

// over gives the place of a stream free whose both directions have ended.
func (s *Stream) over() {
	if s.ended || !s.outEnded || !s.inEnded {
		return
	}
	s.ended = true
	if s.ours {
		s.conn.opened--
		signal(s.conn.room)
	}
}

// Close implements transport.Stream.
func (s *Stream) Close() error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.writeErr == nil && s.conn.err == nil {
		s.closed = true
		s.queue()
		s.writing.Changed()
	}
	return nil
}

// CancelRead implements transport.Stream.
func (s *Stream) CancelRead(code transport.Code) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.readErr != nil || s.eof || s.conn.err != nil {
		return
	}
	s.readErr, s.in = &transport.StreamError{Code: code}, nil
	if !s.inEnded {
		s.conn.control = append(s.conn.control, piece{to: s.peer, stop: &code})
		s.conn.send()
	}
	s.reading.Changed()
}

// CancelWrite implements transport.Stream.
func (s *Stream) CancelWrite(code transport.Code) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.cutOut(transport.StreamError{Code: code})
}

// SetUrgency implements transport.Stream.
func (s *Stream) SetUrgency(urgency int8) {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	if s.queued { // in the list of the old one
		ready := &s.conn.ready[s.urgency]
		*ready = slices.DeleteFunc(*ready, func(other *Stream) bool { return other == s })
		s.queued = false
	}
	s.urgency = min(max(urgency, 0), urgencies-1)
	s.queue()
}

// SetDeadline implements transport.Stream.
func (s *Stream) SetDeadline(t time.Time) error {
	return errors.Join(s.SetReadDeadline(t), s.SetWriteDeadline(t))
}

// SetReadDeadline implements transport.Stream.
func (s *Stream) SetReadDeadline(t time.Time) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.reading.SetDeadline(t)
	return nil
}

// SetWriteDeadline implements transport.Stream.
func (s *Stream) SetWriteDeadline(t time.Time) error {
	s.conn.mu.Lock()
	defer s.conn.mu.Unlock()
	s.writing.SetDeadline(t)
	return nil
}
