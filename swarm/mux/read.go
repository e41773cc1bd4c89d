package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/neterr"
	"pnode/swarm/transport"
)

// readLoop takes in what the peer sends until the peer ends the connection or the socket is closed: a kernel that closes
// a socket with unread bytes drops what it has not sent, this end's farewell for one.
func (c *Conn) readLoop() {
	switch err := c.readAll(counted{c}); {
	case errors.Is(err, errFault):
		reason := strings.TrimPrefix(err.Error(), "mux: ")
		c.end(&brokenError{kind: neterr.KindForeign, reason: reason}, faultFrame(reason))
		io.Copy(io.Discard, c.conn)
	case err != nil:
		c.broken(err)
	}
}

// counted reads the line and notes what has come.
type counted struct{ c *Conn }

func (r counted) Read(b []byte) (int, error) {
	n, err := r.c.conn.Read(b)
	r.c.received.Add(uint64(n))
	return n, err
}

// readAll handles frames. It returns nil when the peer has ended the connection.
func (c *Conn) readAll(r io.Reader) error {
	var head [headerBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	if string(head[:]) != preface {
		return fmt.Errorf("%w: it begins with %q, want %q: is it the same version?", errFault, head[:], preface)
	}
	payload := make([]byte, codeBytes+transport.MaxReason)
	for {
		h, err := readHeader(r, &head)
		if err != nil {
			return err
		}
		c.heard.Store(uint64(time.Since(c.begun)))
		if h.kind == kindData {
			err = c.readData(r, h)
		} else if _, err = io.ReadFull(r, payload[:h.length]); err == nil {
			err = c.handle(h, payload[:h.length])
		}
		if err != nil {
			return err
		}
		if h.kind == kindClose || h.kind == kindFault {
			return nil
		}
	}
}

// readData checks that there is room for DATA and reads it.
func (c *Conn) readData(r io.Reader, h header) error {
	c.mu.Lock()
	s, err := c.receiver(h)
	if err == nil && (s.window.received+uint64(h.length) > s.window.limit || c.in.received+uint64(h.length) > c.in.limit) {
		err = fmt.Errorf("%w: %d bytes on stream %d, whose window has room for %d and the connection's for %d", errFault,
			h.length, h.stream, s.window.limit-s.window.received, c.in.limit-c.in.received)
	}
	if err != nil {
		c.mu.Unlock()
		return err
	}
	s.window.received += uint64(h.length)
	c.in.received += uint64(h.length)
	wanted := s.readErr == nil && c.err == nil
	var room [2]*chunk
	if wanted {
		room = s.in.reserve(h.length)
	}
	c.mu.Unlock()
	if !wanted {
		_, err = io.CopyN(io.Discard, r, int64(h.length))
	} else {
		first := room[0].b[room[0].w:]
		first = first[:min(len(first), h.length)]
		_, err = io.ReadFull(r, first)
		if rest := h.length - len(first); err == nil && rest > 0 {
			_, err = io.ReadFull(r, room[1].b[:rest])
		}
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !wanted || !s.in.commit(room, h.length) {
		c.consumed(h.length)
		return nil
	}
	s.reading.Changed()
	return nil
}

// receiver returns the stream of DATA, END or RESET, which is opened if it is the peer's next one. Callers hold mu.
func (c *Conn) receiver(h header) (*stream, error) {
	s, err := c.lookUp(h)
	switch {
	case err != nil:
		return nil, err
	case s == nil || s.inEnded:
		return nil, fmt.Errorf("%w: frame of kind %d on stream %d after its end", errFault, h.kind, h.stream)
	}
	return s, nil
}

// lookUp returns the stream of a frame, nil if it has ended in both directions. Callers hold mu.
func (c *Conn) lookUp(h header) (*stream, error) {
	if s := c.streams[h.stream]; s != nil {
		return s, nil
	}
	theirs := h.stream%2 == c.nextIn%2
	switch {
	case theirs && h.stream < c.nextIn || !theirs && h.stream < c.nextOut:
		return nil, nil
	case !theirs || h.stream != c.nextIn || h.kind == kindWindow:
		return nil, fmt.Errorf("%w: frame of kind %d on stream %d, which nobody has opened", errFault, h.kind, h.stream)
	case c.incoming >= maxStreams:
		return nil, fmt.Errorf("%w: more than %d streams", errFault, maxStreams)
	}
	s := newStream(c, false)
	s.id = h.stream
	c.nextIn += 2
	c.incoming++
	if c.err == nil {
		c.streams[s.id] = s
		c.accepts = append(c.accepts, s)
		c.announce()
	}
	return s, nil
}

// handle acts on a frame that is not DATA.
func (c *Conn) handle(h header, payload []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil
	}
	var number uint64
	if len(payload) >= 8 {
		number = binary.BigEndian.Uint64(payload)
	}
	switch h.kind {
	case kindEnd, kindReset:
		s, err := c.receiver(h)
		if err != nil {
			return err
		}
		s.inEnded = true
		if h.kind == kindReset {
			s.cutIn(&transport.StreamError{Remote: true, Code: transport.Code(number)})
		}
		s.reading.Changed()
		c.settle(s)
	case kindStop:
		s, err := c.lookUp(h)
		if s != nil && !s.outEnded && s.writeErr == nil {
			s.cutOut(&transport.StreamError{Remote: true, Code: transport.Code(number)})
		}
		return err
	case kindWindow:
		return c.widen(h, number)
	case kindPing:
		if !c.pings.asked(time.Now()) {
			return fmt.Errorf("%w: more than %d PINGs before it has read the answers", errFault, maxPings)
		}
		c.stir()
	case kindPong:
		if err := c.pings.answered(number, binary.BigEndian.Uint64(payload[8:]), c.sent.Load(), time.Now()); err != nil {
			return err
		}
		c.stir()
	case kindClose:
		c.finish(&transport.ConnError{Remote: true, Code: transport.Code(number), Reason: plan.Clip(string(payload[codeBytes:]), transport.MaxReason)}, nil)
	case kindFault:
		c.finish(&brokenError{kind: neterr.KindClosed, reason: fmt.Sprintf("the peer ended the connection: %q", payload)}, nil)
	}
	return nil
}

// widen takes the peer's word that more may be sent. Callers hold mu.
func (c *Conn) widen(h header, limit uint64) error {
	if h.stream != 0 {
		s, err := c.lookUp(h)
		if s != nil && limit > s.limit {
			s.limit = limit
			c.offer(s)
		}
		return err
	}
	if limit > c.outLimit {
		c.outLimit = limit
		c.stir()
	}
	return nil
}
