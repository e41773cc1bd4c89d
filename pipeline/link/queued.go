package link

import (
	"sync"
	"time"
)

// queued measures how fast messages come through that stand behind others: what the line, the
// windows of its connections and other traffic on it leave them. A message on its own shows little
// of that, since most of its time is the round trip's.
//
// A piece that had not waited would have been acknowledged a round trip after it was there to be
// sent. Where that is before the acknowledgement ahead of it came, the piece was waiting all the
// time from there to its own, and that time was spent on it. The round trip only tells which pieces
// count: one that is assumed too long leaves some out.
type queueMeter struct {
	mu     sync.Mutex // guards the rest
	newest time.Time  // when something was acknowledged last
	bytes  uint64     // of payload that waited
	took   time.Duration
}

// acked takes in that bytes of payload, the first of which were there to be sent at since, were
// acknowledged at now. Without a queue that takes at most trip.
func (q *queueMeter) acked(bytes int, since, now time.Time, trip time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.newest.IsZero() && !since.Add(trip).After(q.newest) {
		q.bytes += uint64(bytes)
		q.took += now.Sub(q.newest)
	}
	q.newest = now
}

// total is what was measured so far.
func (q *queueMeter) total() (bytes uint64, took time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.bytes, q.took
}
