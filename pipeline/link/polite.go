package link

import (
	"context"
	"sync"
	"time"

	"github.com/quic-go/quic-go"

	"pnode/planner/plan"
)

// Bulk is polite while messages are exchanged: it keeps the queue that it builds on the line
// below politeQueue. A stream's low priority is not enough, since what a connection has sent
// already stands in that queue before whatever comes later.
const (
	pacerQueue = 15 * time.Millisecond
	// politeAfter is how long after the last message bulk may have the line to itself.
	pacerAfter = 2 * time.Second
	pacerSlice = 16 << 10
	// Rates in bytes a second: to begin with, and the least ones. Over a short line, in one
	// room or one machine, delays tell how busy processors are rather than the line.
	pacerFirst = 1 << 20
	pacerLeast = 256 << 10
	// politeMost keeps the rate within reach of a line that fills again.
	pacerMost = 4 << 30
	pacerNear = 8 << 20
	shortLine = 2 * time.Millisecond
)

// polite paces all bulk to one peer by the delay that a connection sees, as LEDBAT does (RFC
// 6817): faster while the queue is short, slower in proportion when it is longer than it
// should be.
type pacer struct {
	mu    sync.Mutex // guards the rest
	rate  float64    // bytes a second
	limit bool       // the queue was too long once: from then on the rate grows slowly
	next  time.Time
	look  time.Time // when the rate is adjusted next
}

// pause waits until the next slice may be written to a connection.
func (p *pacer) pause(ctx context.Context, conn *quic.Conn, slice int) {
	timer := time.NewTimer(p.turn(conn, slice))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// turn is how long it is until then.
func (p *pacer) turn(conn *quic.Conn, slice int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.rate == 0 {
		p.rate, p.next = pacerFirst, now
	}
	if now.After(p.look) {
		s := conn.ConnectionStats()
		p.adjust(s.LatestRTT - s.MinRTT)
		if s.MinRTT < shortLine {
			p.rate = max(p.rate, pacerNear)
		}
		p.look = now.Add(max(s.LatestRTT, time.Millisecond))
	}
	if p.next.Before(now) {
		p.next = now
	}
	p.next = p.next.Add(time.Duration(float64(slice) / p.rate * float64(time.Second)))
	return p.next.Sub(now)
}

// adjust changes the rate, once in a round trip, by what the queue was.
func (p *pacer) adjust(queue time.Duration) {
	off := float64(pacerQueue-queue) / float64(pacerQueue)
	switch {
	case off < 0:
		p.limit = true
		p.rate *= 1 + max(off, -1)/2 // never below half
	case p.limit:
		p.rate *= 1 + off/8
	default:
		p.rate *= 1 + off
	}
	p.rate = min(max(p.rate, pacerLeast), pacerMost)
}

// pace waits until bulk may be written to a peer, of which there are n bytes, and gives how
// many of them.
func (e *Endpoint) pace(to plan.PeerID, conn *quic.Conn, n int) int {
	if !e.occupied() {
		return n
	}
	e.mu.Lock()
	p := &e.peer(to).bulk
	e.mu.Unlock()
	n = min(n, pacerSlice)
	p.pause(e.ctx, conn, n)
	return n
}

// occupied tells whether messages are being exchanged: one was under way a moment ago.
func (e *Endpoint) occupied() bool {
	e.mu.Lock()
	session := e.session
	e.mu.Unlock()
	if !session.alive() {
		return false
	}
	now := time.Now()
	for _, r := range session.order {
		if r.busy.ran(now.Add(-pacerAfter)) {
			return true
		}
	}
	return false
}
