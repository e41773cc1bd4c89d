package link

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"pnode/pipeline/wire"
	"pnode/swarm/transport"
)

// connection sends one session's messages to one peer over a QUIC connection. The connections of a
// peer take pieces from the same outboxes, each as fast as its congestion window lets it.
type connection struct {
	remote *remote
	conn   *liveConn
	rank   atomic.Int32 // among the connections of the peer: those from remote.want on rest

	// ctx ends when the connection breaks or has nothing more to send; writers end with it.
	ctx     context.Context
	stop    context.CancelFunc
	writers sync.WaitGroup
	through chan struct{} // closed when the writers of all classes have ended

	mu      sync.Mutex // guards streams
	streams []*outStream

	// Bytes received when the connection was looked at last, and when they had grown. They belong to
	// the goroutine of remote.run.
	bytes uint64
	moved time.Time
	// How many times in a row the connection, seen then, was not in use, and what it had carried
	// the first time. They belong to the same goroutine.
	idle    int
	carried uint64
	// Packets sent and lost until the last sample. They belong to the same goroutine.
	packets, lost uint64
}

// attach begins to send to r over a connection. It belongs to the goroutine of remote.run.
func (r *remote) attach(conn *liveConn) *connection {
	c := &connection{
		remote: r, conn: conn, through: make(chan struct{}),
		moved: time.Now(), bytes: conn.Stats().BytesReceived,
	}
	c.ctx, c.stop = context.WithCancel(r.flush)
	r.session.also(func() {
		defer context.AfterFunc(conn.Context(), c.stop)()
		c.writers.Go(c.pulse)
		c.writers.Go(c.warm)
		var classes sync.WaitGroup
		for _, class := range wire.SessionClasses {
			classes.Go(func() { c.write(class) })
		}
		classes.Wait()
		close(c.through)
		c.writers.Wait()
		c.stop()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, s := range c.streams { // what is not acknowledged goes over another connection
			s.takeBack()
		}
		c.streams = nil
	})
	return c
}

// release has other connections send what is under way on this one, and cuts the streams that it is on.
func (c *connection) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = slices.DeleteFunc(c.streams, func(s *outStream) bool {
		if !s.takeBack() {
			return false
		}
		cut(s.stream, streamCut)
		return true
	})
}

// active reports whether the connection may take pieces.
func (c *connection) active() bool { return c.rank.Load() < c.remote.want.Load() }

// silent returns how long nothing has come on the connection, not even an acknowledgement.
func (c *connection) silent(now time.Time) time.Duration { return now.Sub(c.moved) }

// look notes whether something has come.
func (c *connection) look(now time.Time) {
	if n := c.conn.Stats().BytesReceived; n != c.bytes {
		c.bytes, c.moved = n, now
	}
}

// write sends pieces of one class until there are no more or the connection breaks.
func (c *connection) write(class wire.Class) {
	box := c.remote.outboxes[class]
	var s *outStream
	for {
		p, err := box.take(c.ctx, c.active)
		if err != nil {
			if s != nil && errors.Is(err, io.EOF) {
				s.leave()
			}
			return
		}
		if s != nil && p.before(s.newest) < 0 {
			s.retire()
			s = nil
		}
		if s == nil {
			if s, err = c.openStream(class); err != nil {
				box.giveBack([]piece{p})
				c.failed(err)
				return
			}
		}
		s.mu.Lock()
		released := s.closed
		if !released {
			s.sent = append(s.sent, p)
		}
		s.mu.Unlock()
		if released {
			box.giveBack([]piece{p})
			s = nil
			continue
		}
		s.newest = p
		if _, err = s.stream.Write(wire.AppendPiece(make([]byte, 0, wire.PieceBytes), p.header, p.seq, p.offset)); err == nil {
			_, err = s.stream.Write(p.payload())
		}
		if err != nil {
			if s.released() { // while it was written
				s = nil
				continue
			}
			c.failed(err)
			return
		}
		if p.again {
			c.remote.counts.resent.Add(1)
			continue
		}
		c.remote.counts.payloadSent.Add(uint64(len(p.payload())))
		c.remote.session.endpoint.counts.sent[p.frame.Tag.Kind].Add(uint64(len(p.payload())))
		if p.last() {
			c.remote.counts.framesSent.Add(1)
		}
	}
}

// pulse sends heartbeats on a stream of their own. The first one says at once that the session is
// open, the stream's end that it has closed and all of it was acknowledged.
func (c *connection) pulse() {
	s, err := c.openStream(wire.Control)
	if err != nil {
		c.failed(err)
		return
	}
	tick := time.NewTicker(c.remote.session.endpoint.opt.interval())
	defer tick.Stop()
	closing, through := c.remote.ctx.Done(), (chan struct{})(nil)
	for {
		if _, err := s.stream.Write(c.remote.heartbeat); err != nil {
			c.failed(err)
			return
		}
		select {
		case <-tick.C:
		case <-closing:
			closing, through = nil, c.through
		case <-through:
			cut(s.stream, streamOver)
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// failed judges why a stream has failed. What was under way on a connection that broke is sent again
// over another one.
func (c *connection) failed(err error) {
	var stream *transport.StreamError
	switch {
	case c.remote.flush.Err() != nil || c.ctx.Err() != nil:
		return // by our own doing, or known
	case errors.As(err, &stream) && !stream.Remote:
		return
	case c.remote.judge(err):
		return
	}
	c.remote.session.endpoint.log.Debug("connection failed", "peer", c.remote.id, "reason", err)
	c.conn.Close(codeSilent, "a stream failed")
	c.stop()
}

// outStream is one outgoing stream of a connection. Its pieces are in the order in which the receiver
// needs them, so that one which it has no room for yet holds up only what comes later.
type outStream struct {
	conn   *connection
	box    *outbox
	stream transport.Stream
	newest piece // written last

	mu      sync.Mutex // guards the rest
	sent    []piece    // not acknowledged, in order
	acked   uint64     // pieces, in all
	closed  bool       // sent was given back
	retired bool       // nothing more is written
}

// openStream opens a stream for a class.
func (c *connection) openStream(class wire.Class) (*outStream, error) {
	stream, err := c.conn.OpenStream(c.ctx)
	if err != nil {
		return nil, err
	}
	stream.SetUrgency(urgency[class])
	r := c.remote
	s := &outStream{conn: c, box: r.outboxes[class], stream: stream}
	c.mu.Lock()
	c.streams = append(c.streams, s)
	c.mu.Unlock()
	open := wire.Open{
		Class: class, Generation: r.session.generation,
		From: r.session.endpoint.epoch, To: wire.ProcessEpoch(r.epoch.Load()),
	}
	if _, err := stream.Write(wire.AppendOpen(nil, open)); err != nil {
		return nil, err
	}
	c.writers.Go(s.readAcks)
	return s, nil
}

// takeBack ends a stream on which pieces are under way, or were, and has them sent over another connection. It reports
// whether there were some.
func (s *outStream) takeBack() (some bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	some = len(s.sent) > 0
	s.closed = s.closed || some
	s.box.giveBack(s.sent)
	s.sent = nil
	return some
}

// released reports whether the pieces of the stream were taken back.
func (s *outStream) released() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// forget drops a stream whose pieces need not be given back.
func (c *connection) forget(s *outStream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams = slices.DeleteFunc(c.streams, func(other *outStream) bool { return other == s })
}

// retire ends a stream on which nothing more is written, as soon as all of it has been acknowledged:
// a peer accepts only so many streams at a time.
func (s *outStream) retire() {
	s.mu.Lock()
	s.retired = true
	through := len(s.sent) == 0
	s.mu.Unlock()
	if through {
		s.leave()
	}
}

// leave closes a stream on which everything has been acknowledged.
func (s *outStream) leave() {
	s.conn.forget(s)
	s.stream.Close()
	s.stream.CancelRead(streamCut)
}

// readAcks returns room in the outbox back as the peer takes pieces in.
func (s *outStream) readAcks() {
	defer context.AfterFunc(s.conn.ctx, func() {
		if s.conn.remote.flush.Err() != nil {
			cut(s.stream, streamOver) // a session that closes sends nothing more
		} else {
			cut(s.stream, streamCut)
		}
	})()
	var b [wire.AckBytes]byte
	for {
		_, err := io.ReadFull(s.stream, b[:])
		if errors.Is(err, io.EOF) {
			return // the peer has read the stream to its end
		}
		var n uint64
		if err == nil {
			n, err = wire.DecodeAck(b[:])
		}
		through := false
		if err == nil {
			c := s.conn.conn.Stats()
			through, err = s.ack(n, min(c.LatestRTT, c.SmoothedRTT))
			s.conn.remote.noteHeld(c)
		}
		if err != nil {
			s.conn.failed(err)
			return
		}
		if through {
			s.leave()
			return
		}
	}
}

// ack notes that the peer has taken in the first n pieces of the stream, over a round trip of rtt, and
// reports whether that was the last piece of a retired one.
func (s *outStream) ack(n uint64, rtt time.Duration) (through bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false, nil
	}
	if n < s.acked || n-s.acked > uint64(len(s.sent)) {
		return false, fmt.Errorf("%w: %d pieces acknowledged after %d, %d are under way", wire.ErrValue, n, s.acked, len(s.sent))
	}
	if fresh := s.sent[:n-s.acked]; len(fresh) > 0 {
		bytes := 0
		for _, p := range fresh {
			bytes += len(p.payload())
		}
		s.conn.remote.queued.acked(bytes, fresh[0].put, time.Now(), rtt+AckEvery)
		s.conn.remote.session.movement.went(len(fresh))
		s.box.done(fresh)
		s.sent, s.acked = s.sent[len(fresh):], n
	}
	return s.retired && len(s.sent) == 0, nil
}

// cut ends both directions of a stream at once.
func cut(stream transport.Stream, code transport.Code) {
	stream.CancelRead(code)
	stream.CancelWrite(code)
}
