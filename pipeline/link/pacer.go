package link

import (
	"slices"
	"sync"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/transport"
)

// While messages are exchanged, bulk keeps the queue that it builds on the line below pacerQueue. A
// stream's low priority is not enough, since what a connection has sent already stands in that queue
// before whatever comes later.
const (
	pacerQueue = 15 * time.Millisecond
	// pacerAfter is how long after the last message bulk may have the line to itself.
	pacerAfter = 2 * time.Second
	pacerSlice = 16 << 10
	// Rates in bytes a second: the first and the least ones. pacerMost keeps the rate within reach of a
	// line that fills again. On a line shorter than shortLine, in one room or one machine, delays say
	// how busy processors are rather than the line: pacerNear is the least rate there.
	pacerFirst = 1 << 20
	pacerLeast = 256 << 10
	pacerMost  = 4 << 30
	pacerNear  = 8 << 20
	shortLine  = 2 * time.Millisecond
	// pacerLooks delays in turn are long where a queue stands on the line; one alone may be due to a busy processor.
	pacerLooks = 4
)

// pacer paces all bulk to one peer by the delay that a connection sees, as LEDBAT does (RFC 6817):
// faster while the queue is short, slower in proportion when it is longer than it should be.
type pacer struct {
	mu    sync.Mutex // guards the rest
	rate  float64    // bytes a second
	limit bool       // the queue was too long once: from then on the rate grows slowly
	long  int        // how many delays in turn were too long
	next  time.Time
	look  time.Time // when the rate is adjusted next
}

// pace blocks until bulk may be written to a peer, of which there are n bytes, and returns how many of
// them may go.
func (e *Endpoint) pace(to plan.PeerID, conn transport.Conn, n int) int {
	e.mu.Lock()
	p, session := &e.peer(to).bulk, e.session
	e.mu.Unlock()
	recently := time.Now().Add(-pacerAfter)
	if !session.alive() || !session.settled.Load() || !slices.ContainsFunc(session.order, func(r *remote) bool { return r.busy.ran(recently) }) {
		return n // no messages are being exchanged, or they wait for chunks
	}
	n = min(n, pacerSlice)
	timer := time.NewTimer(p.turn(conn, n))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
	}
	return n
}

// turn returns how long it is until the next slice may be written to a connection.
func (p *pacer) turn(conn transport.Conn, slice int) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.rate == 0 {
		p.rate, p.next = pacerFirst, now
	}
	if now.After(p.look) {
		s := conn.Stats()
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

// adjust changes the rate, once in a round trip, by the queue of the last one. It stays while the queue may be a processor that
// is busy: a queue on the line lasts, which is why RFC 6817 filters delays (section 4.2).
func (p *pacer) adjust(queue time.Duration) {
	off := float64(pacerQueue-queue) / float64(pacerQueue)
	if off >= 0 {
		p.long = 0
	} else {
		p.long++
	}
	switch {
	case p.long >= pacerLooks:
		p.limit = true
		p.rate *= 1 + max(off, -1)/2 // never below half
	case p.long > 0:
	case p.limit:
		p.rate *= 1 + off/8
	default:
		p.rate *= 1 + off
	}
	p.rate = min(max(p.rate, pacerLeast), pacerMost)
}
