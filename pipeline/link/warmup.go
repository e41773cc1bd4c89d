package link

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// A connection is warmed with at most warmBytes: from 32 packets a congestion window has grown to
// 5 MB, 1 Gbit/s at 40 ms, after 7 round trips and some 10 MB. It takes at most warmTime or, on a
// long line, warmTrips round trips.
const (
	warmBytes = 8 << 20
	warmTime  = time.Second
	warmTrips = 10
)

// Warm opens the congestion windows of the connections with a peer before the first message needs
// them, by sending bytes that mean nothing. Send keeps messages of all classes but control back until
// both directions are through, which takes at most warmTime or warmTrips each. A connection that
// starts concurrently with others' traffic sees its acknowledgements wait in their queue, takes that
// for a full line and stops doubling its window. At 10 Mbit/s and 300 ms it would stay at 32 packets,
// a tenth of what the line holds, and grow by one packet a round trip.
//
// bytes is at most how many bytes of messages are under way to one peer at once. A window that holds them
// is wide enough: small messages need no warming.
//
// Both ends call it right after Endpoint.Session, with the same bytes. It does not warm a connection twice, and
// ignores peers that are not of the session.
func (s *Session) Warm(bytes int, peers ...plan.PeerID) {
	for _, id := range peers {
		r := s.remotes[id]
		if r == nil || r.warmUp.asked.was() {
			continue
		}
		r.warmUp.bytes.Store(int64(min(max(bytes, 0), warmBytes)))
		if r.warmUp.asked.give() {
			s.spawn(r.awaitWarmUp)
		}
	}
}

// signal is given once.
type signal struct {
	once  sync.Once
	given chan struct{}
}

func newSignal() *signal { return &signal{given: make(chan struct{})} }

// give reports whether this was the first time.
func (s *signal) give() (first bool) {
	s.once.Do(func() {
		close(s.given)
		first = true
	})
	return first
}

func (s *signal) was() bool {
	select {
	case <-s.given:
		return true
	default:
		return false
	}
}

// warmUp records how far the warming of the connections with a peer is.
type warmUp struct {
	asked *signal      // by Warm
	bytes atomic.Int64 // that a window has to hold; set before asked
	here  *signal      // a connection has found its pace in the direction to the peer
	cold  atomic.Bool  // it had to be found; set before here
	met   *signal      // the peer has opened its session
	there *signal      // the peer's padding has come to its end
	over  *signal      // messages may go
}

// awaitWarmUp lets messages go when both directions are through, or the peer, once it is there, has
// had its time. Where there was nothing to do here, messages wait for nothing.
func (r *remote) awaitWarmUp() {
	defer r.warmUp.over.give()
	select {
	case <-r.warmUp.here.given:
	case <-r.ctx.Done():
		return
	}
	if !r.warmUp.cold.Load() {
		return
	}
	select {
	case <-r.warmUp.met.given:
	case <-r.ctx.Done():
		return
	}
	longest := warmTime
	r.mu.Lock()
	for _, c := range r.connections {
		longest = max(longest, c.warmBound())
	}
	r.mu.Unlock()
	bound := time.NewTimer(longest)
	defer bound.Stop()
	select {
	case <-r.warmUp.there.given:
	case <-bound.C:
	case <-r.ctx.Done():
	}
}

// warmBound returns the longest time that warming one direction takes.
func (c *connection) warmBound() time.Duration {
	return max(warmTime, warmTrips*c.conn.Stats().SmoothedRTT)
}

// warm blocks until it is asked for and then sends padding, whose end shows the peer that this
// direction is through: at once if the window holds what is to be sent, or if the line is so short that a
// window opens within a message.
func (c *connection) warm() {
	r := c.remote
	select {
	case <-r.warmUp.asked.given:
	case <-r.ctx.Done():
		return
	case <-c.ctx.Done():
		return
	}
	s, err := c.openStream(wire.Control)
	if err != nil {
		c.failed(err)
		return
	}
	s.stream.SetUrgency(urgencyWarm)
	switch err := c.pad(s.stream); {
	case errors.Is(err, os.ErrDeadlineExceeded): // in the middle of a piece
		c.forget(s)
		cut(s.stream, streamCut)
	case err != nil:
		c.failed(err)
		return
	default:
		s.leave()
	}
	r.warmUp.here.give()
}

// pad sends padding until the congestion window holds what Warm was told, or the connection has found its pace:
// the window no longer grows by an eighth within a round trip and a half. In slow start it doubles with each round trip.
func (c *connection) pad(stream transport.Stream) error {
	r := c.remote
	padding := wire.Frame{Tag: wire.Tag{Kind: wire.Padding, Generation: r.session.generation}}
	if _, err := stream.Write(wire.AppendPiece(nil, wire.AppendHeader(nil, padding), 0, 0)); err != nil {
		return err
	}
	e := r.session.endpoint
	e.mu.Lock()
	warm := c.conn.warm
	e.mu.Unlock()
	want := uint64(r.warmUp.bytes.Load())
	if stats := c.conn.Stats(); want <= max(warm, stats.CongestionWindow) || stats.MinRTT < shortLine {
		return nil
	}
	defer context.AfterFunc(r.ctx, func() { stream.SetWriteDeadline(time.Now()) })()
	r.warmUp.cold.Store(true)
	begin := time.Now()
	padding.Payload = make([]byte, wire.MaxPieceBytes)
	piece := append(wire.AppendPiece(nil, wire.AppendHeader(nil, padding), 0, 0), padding.Payload...)
	var window uint64
	var grown time.Time
	for sent := 0; sent < warmBytes; sent += len(piece) {
		now, stats := time.Now(), c.conn.Stats()
		if stats.CongestionWindow >= want {
			break
		}
		if stats.CongestionWindow >= window+window/8 {
			window, grown = stats.CongestionWindow, now
		}
		if now.Sub(grown) > stats.SmoothedRTT*3/2 {
			break
		}
		stream.SetWriteDeadline(begin.Add(c.warmBound())) // the peer may not read
		if r.ctx.Err() != nil || r.warmUp.over.was() && r.busy.ran(time.Now()) {
			return nil // a connection that came later makes way for messages
		}
		if _, err := stream.Write(piece); err != nil {
			return err
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c.conn.warm = want
	return nil
}
