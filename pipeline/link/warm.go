package link

import (
	"context"
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// A connection is warmed with at most warmBytes: from 32 packets a congestion window has
// grown to 5 MB, 1 Gbit/s at 40 ms, after 7 round trips and some 10 MB. It takes at most
// warmTime or, on a long line, warmTrips round trips.
const (
	warmBytes = 8 << 20
	warmTime  = time.Second
	warmTrips = 10
)

// Warm has the connections with a peer find their pace before the first message needs it, by
// sending bytes that mean nothing. Send keeps messages of all classes but control back until
// both directions are through, which takes at most warmTime or warmTrips each: a connection
// that starts beside others' traffic sees its acknowledgements wait in their queue, takes that
// for a full line and stops doubling its window. At 10 Mbit/s and 300 ms it would stay at 32
// packets, a tenth of what the line holds, and grow by one packet a round trip.
//
// It is to be called on both ends, right after Endpoint.Session. Connections that were warmed
// before are not again. Peers that are not of the session are ignored.
func (s *Session) Warm(peers ...plan.PeerID) {
	for _, id := range peers {
		if r := s.remotes[id]; r != nil && r.warmUp.asked.give() {
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

// give tells whether this was the first time.
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

// warmth is how far the warming of an edge is.
type warmUp struct {
	asked *signal     // by Warm
	here  *signal     // a connection has found its pace in the direction to the peer
	cold  atomic.Bool // it had to be found; set before here
	met   *signal     // the peer has opened its session
	there *signal     // the peer's padding has come to its end
	over  *signal     // messages may go
}

func newWarmUp() *warmUp {
	return &warmUp{asked: newSignal(), here: newSignal(), met: newSignal(), there: newSignal(), over: newSignal()}
}

// wait keeps a message back while the edge is being warmed, and while open lasts.
func (w *warmUp) wait(ctx, open context.Context) error {
	if !w.asked.was() {
		return nil
	}
	select {
	case <-w.over.given:
	case <-open.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// awaitWarmth lets messages go when both directions are through, or the peer, once it is there,
// has had its time. Where there was nothing to do here, there is nothing to do at the other end.
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
	for _, s := range r.connections {
		longest = max(longest, s.warmBound())
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

// warmBound is the longest that warming one direction takes.
func (s *connection) warmBound() time.Duration {
	return max(warmTime, warmTrips*s.quic.ConnectionStats().SmoothedRTT)
}

// warm waits until it is asked for and then sends padding, whose end tells the peer that this
// direction is through: at once if the connection has been warmed, or if the line is so short
// that a window opens within a message.
func (s *connection) warm() {
	r := s.remote
	select {
	case <-r.warmUp.asked.given:
	case <-r.ctx.Done():
		return
	case <-s.ctx.Done():
		return
	}
	l, err := s.openStream(wire.Control)
	if err != nil {
		s.failed(err)
		return
	}
	l.stream.SetPriority(urgencyWarm, true)
	switch err := s.pad(l.stream); {
	case errors.Is(err, os.ErrDeadlineExceeded): // in the middle of a piece
		s.streams.remove(l)
		cut(l.stream, streamCut)
	case err != nil:
		s.failed(err)
		return
	default:
		l.leave()
	}
	r.warmUp.here.give()
}

// pad sends padding until the connection has found its pace: what is there to be found in a
// congestion window that no longer grows.
func (s *connection) pad(stream *quic.Stream) error {
	r := s.remote
	padding := wire.Frame{Tag: wire.Tag{Kind: wire.Padding, Generation: r.session.generation}}
	if _, err := stream.Write(wire.AppendPiece(nil, wire.AppendHeader(nil, padding), 0, 0)); err != nil {
		return err
	}
	if s.quic.ConnectionStats().MinRTT < shortLine || r.session.endpoint.isWarm(r.id, s.quic) {
		return nil
	}
	defer context.AfterFunc(r.ctx, func() { stream.SetWriteDeadline(time.Now()) })()
	r.warmUp.cold.Store(true)
	begin := time.Now()
	padding.Payload = make([]byte, wire.MaxPieceBytes)
	piece := append(wire.AppendPiece(nil, wire.AppendHeader(nil, padding), 0, 0), padding.Payload...)
	var pace opening
	for sent := 0; sent < warmBytes && pace.grows(time.Now(), s.quic.ConnectionStats()); sent += len(piece) {
		stream.SetWriteDeadline(begin.Add(s.warmBound())) // the peer may not read
		if r.ctx.Err() != nil || r.warmUp.over.was() && r.busy.runs() {
			return nil // a connection that came later makes way for messages
		}
		if _, err := stream.Write(piece); err != nil {
			return err
		}
	}
	r.session.endpoint.noteWarm(r.id, s.quic)
	return nil
}

// opening watches a congestion window.
type opening struct {
	window uint64
	since  time.Time
}

// grows tells whether the window has grown by an eighth within a round trip and a half: in slow
// start it doubles with each.
func (o *opening) grows(now time.Time, c quic.ConnectionStats) bool {
	if c.CongestionWindow >= o.window+o.window/8 {
		o.window, o.since = c.CongestionWindow, now
	}
	return now.Sub(o.since) <= c.SmoothedRTT*3/2
}
