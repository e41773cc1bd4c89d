package link

import (
	"bytes"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"
)

// LinkConditions describe one direction of an emulated link. A packet waits in a queue for its turn on
// the line, takes its size over BytesPerS on it, then Delay and a part of Jitter on the way. Packets of
// a link keep their order unless Reorder is set.
type LinkConditions struct {
	// BytesPerS is the line's rate; 0 is without limit.
	BytesPerS int64
	// Delay is one way. Jitter adds an even spread of [0,Jitter).
	Delay, Jitter time.Duration
	// Reorder lets a packet overtake one that Jitter holds up longer.
	Reorder bool
	// LossPerMillion packets are lost on the way, independently of each other.
	LossPerMillion int
	// QueueBytes is how much may wait for a limited line; what comes on top is dropped.
	// 0 is what the line carries in 100 ms, and at least 64 KiB.
	QueueBytes int
}

// LinkCounts count what happened to the packets of one direction.
type LinkCounts struct {
	Packets, Bytes uint64
	// Overflowed packets found the queue full, Lost ones were lost on the way, Cut ones
	// were sent across a cut.
	Overflowed, Lost, Cut uint64
}

// addressOf returns a UDP address, and the zero value for others.
func addressOf(a net.Addr) netip.AddrPort {
	if udp, ok := a.(*net.UDPAddr); ok {
		return udp.AddrPort()
	}
	return netip.AddrPort{}
}

// line is the state of one direction.
type line struct {
	conditions LinkConditions
	uplink     *uplink // nil: the sender has none that could hold packets up
	cut        bool
	free       time.Time // when the line has sent everything that waits
	last       time.Time // when the newest packet comes out
	random     *rand.Rand
	counts     LinkCounts
}

// uplink holds up all packets of a sender on the way to their lines.
type uplink struct {
	bytesPerS float64
	free      time.Time // when it has sent everything that waits
}

// newLine makes a line whose losses and jitter follow from a seed and a number of its own.
func newLine(seed, stream uint64) *line {
	return &line{random: rand.New(rand.NewPCG(seed, stream))}
}

// pass returns the time at which a packet of size bytes, sent now, comes out.
func (l *line) pass(now time.Time, size int) (due time.Time, ok bool) {
	l.counts.Packets++
	l.counts.Bytes += uint64(size)
	if l.cut {
		l.counts.Cut++
		return due, false
	}
	if l.free.Before(now) {
		l.free = now
	}
	if rate := float64(l.conditions.BytesPerS); rate > 0 {
		waiting := l.free.Sub(now).Seconds() * rate
		room := int64(l.conditions.QueueBytes)
		if room <= 0 {
			room = max(64<<10, l.conditions.BytesPerS/10)
		}
		if int64(waiting)+int64(size) > room {
			l.counts.Overflowed++
			return due, false
		}
		took := time.Duration(float64(size) / rate * float64(time.Second))
		if up := l.uplink; up != nil {
			if up.free.Before(now) {
				up.free = now
			}
			l.free = later(l.free, up.free) // it leaves the uplink while it enters the line
			up.free = up.free.Add(time.Duration(float64(size) / up.bytesPerS * float64(time.Second)))
		}
		l.free = l.free.Add(took)
	}
	if l.conditions.LossPerMillion > 0 && l.random.IntN(1_000_000) < l.conditions.LossPerMillion {
		l.counts.Lost++
		return due, false
	}
	due = l.free.Add(l.conditions.Delay)
	if l.conditions.Jitter > 0 {
		due = due.Add(time.Duration(l.random.Int64N(int64(l.conditions.Jitter))))
	}
	if due.Before(l.last) && !l.conditions.Reorder {
		due = l.last
	}
	l.last = due
	return due, true
}

// later returns the second time, but not one before the first.
func later(first, second time.Time) time.Time {
	if second.Before(first) {
		return first
	}
	return second
}

// maxOnTheWay bounds the bytes of packets on their way; what comes on top is dropped.
const maxOnTheWay = 64 << 20

// packet is on its way until due.
type packet struct {
	data  []byte
	other net.Addr // the end that it comes from or goes to
	due   time.Time
}

// packets are on their way to one reader. The zero value is empty and ready.
type packets struct {
	mu       sync.Mutex // guards the rest
	waiting  []packet   // in the order in which they come out
	bytes    int
	deadline time.Time // of take
	closed   bool
	changed  broadcast
}

// put takes a copy of a packet, and drops it where there is no room.
func (q *packets) put(data []byte, other net.Addr, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.bytes+len(data) > maxOnTheWay {
		return
	}
	q.bytes += len(data)
	i, _ := slices.BinarySearchFunc(q.waiting, due, func(p packet, due time.Time) int {
		if p.due.After(due) {
			return 1
		}
		return -1 // of packets due at once the first one stays first
	})
	q.waiting = slices.Insert(q.waiting, i, packet{bytes.Clone(data), other, due})
	if i == 0 {
		q.changed.wake()
	}
}

// take blocks until a packet comes out. It fails with net.ErrClosed, and past the deadline with
// os.ErrDeadlineExceeded.
func (q *packets) take() (packet, error) {
	for {
		p, wait, changed, err := q.next(time.Now())
		if changed == nil {
			return p, err
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// next removes the packet that is due, or returns how long to wait for a change.
func (q *packets) next(now time.Time) (p packet, wait time.Duration, changed <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	wait = math.MaxInt64
	switch {
	case q.closed:
		return p, 0, nil, net.ErrClosed
	case q.deadline.IsZero():
	case !now.Before(q.deadline):
		return p, 0, nil, os.ErrDeadlineExceeded
	default:
		wait = q.deadline.Sub(now)
	}
	if len(q.waiting) > 0 {
		p = q.waiting[0]
		if !p.due.After(now) {
			q.waiting[0] = packet{} // its bytes are the reader's now
			q.waiting = q.waiting[1:]
			q.bytes -= len(p.data)
			return p, 0, nil, nil
		}
		wait = min(wait, p.due.Sub(now))
	}
	return p, wait, q.changed.wait(), nil
}

// SetReadDeadline sets until when take waits; the zero time is without limit.
func (q *packets) SetReadDeadline(t time.Time) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deadline = t
	q.changed.wake()
	return nil
}

// close drops all packets, now and later.
func (q *packets) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed, q.waiting = true, nil
	q.changed.wake()
}
