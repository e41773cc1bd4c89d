package link

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/pipeline/wire"
)

// stripe is a connection as one session uses it to send to one peer. The stripes of a peer
// take pieces from the same outboxes, each as fast as its congestion window lets it.
type connection struct {
	remote  *remote
	quic    *quic.Conn
	rank    atomic.Int32 // place among the stripes of the peer: those from remote.want on rest
	streams outStreams

	// ctx ends when the stripe breaks or has nothing more to send; writers end with it.
	ctx     context.Context
	stop    context.CancelFunc
	writers sync.WaitGroup
	through chan struct{} // closed when those of all classes have ended

	// bytes received on the connection when it was looked at last, and when they had grown.
	// They belong to the goroutine of remote.run.
	bytes uint64
	moved time.Time
}

// attach begins to send to r over a connection. It belongs to the goroutine of remote.run.
func (r *remote) attach(conn *quic.Conn) *connection {
	s := &connection{
		remote: r, quic: conn, through: make(chan struct{}),
		moved: time.Now(), bytes: conn.ConnectionStats().BytesReceived,
	}
	s.ctx, s.stop = context.WithCancel(r.flush)
	r.session.also(func() {
		defer context.AfterFunc(conn.Context(), s.stop)()
		s.writers.Go(s.pulse)
		s.writers.Go(s.warm)
		var classes sync.WaitGroup
		for _, c := range wire.SessionClasses {
			classes.Go(func() { s.write(c) })
		}
		classes.Wait()
		close(s.through)
		s.writers.Wait()
		s.stop()
		s.streams.giveBack()
	})
	return s
}

// active tells whether the stripe may take pieces.
func (s *connection) active() bool { return s.rank.Load() < s.remote.want.Load() }

// silent is how long nothing has come on the connection, not even an acknowledgement.
func (s *connection) silent(now time.Time) time.Duration { return now.Sub(s.moved) }

// look notes whether something has come.
func (s *connection) look(now time.Time) {
	if n := s.quic.ConnectionStats().BytesReceived; n != s.bytes {
		s.bytes, s.moved = n, now
	}
}

// write sends pieces of one class until there are no more or the stripe breaks.
func (s *connection) write(class wire.Class) {
	box := s.remote.outboxes[class]
	var l *outStream
	for {
		p, err := box.take(s.ctx, s.active)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			if l != nil {
				l.leave()
			}
			return
		default:
			return
		}
		if l == nil || p.before(l.newest) < 0 {
			if l != nil {
				l.retire()
			}
			if l, err = s.openStream(class); err != nil {
				box.giveBack([]piece{p})
				s.failed(err)
				return
			}
		}
		if err := l.write(p); err != nil {
			s.failed(err)
			return
		}
	}
}

// pulse sends heartbeats on a stream of their own. The first one tells the peer at once that
// the session is open, the stream's end that it has closed and all of it was acknowledged.
func (s *connection) pulse() {
	l, err := s.openStream(wire.Control)
	if err != nil {
		s.failed(err)
		return
	}
	tick := time.NewTicker(s.remote.session.endpoint.opt.interval())
	defer tick.Stop()
	closing, through := s.remote.ctx.Done(), (chan struct{})(nil)
	for {
		if _, err := l.stream.Write(s.remote.heartbeat); err != nil {
			s.failed(err)
			return
		}
		select {
		case <-tick.C:
		case <-closing:
			closing, through = nil, s.through
		case <-through:
			cut(l.stream, streamOver)
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// failed judges why a stream of the stripe has failed. What was under way on a connection
// that broke is sent again over another one.
func (s *connection) failed(err error) {
	var stream *quic.StreamError
	switch {
	case s.remote.flush.Err() != nil || s.ctx.Err() != nil:
		return // by our own doing, or known
	case errors.As(err, &stream) && !stream.Remote:
		return
	case s.remote.judge(err):
		return
	}
	s.remote.session.endpoint.log.Debug("stripe failed", "peer", s.remote.id, "reason", err)
	s.quic.CloseWithError(codeSilent, "a stream failed")
	s.stop()
}
