package memory

import (
	"sync"
	"time"
)

// Path is the way of bytes from one host to another.
type Path struct {
	// Latency returns how long a byte is under way now, without its turn on the lines.
	Latency func() time.Duration
	// Lost, if not nil, reports whether what is sent now is lost.
	Lost func() bool
	// Sent, if not nil, is told of all bytes that are sent.
	Sent func(bytes int)
	// Up is the sender's line, Down the receiver's. Nil carries everything at once.
	Up, Down *Rate
}

// Open reports whether what is sent now arrives.
func (p Path) Open() bool { return p.Lost == nil || !p.Lost() }

// carry takes a turn on both lines for some bytes. It returns when the next bytes may follow, and when these arrive.
func (p Path) carry(now time.Time, bytes int) (next, arrives time.Time) {
	if p.Sent != nil {
		p.Sent(bytes)
	}
	start, next := p.Up.turn(now, bytes)
	_, arrives = p.Down.turn(start.Add(p.Latency()), bytes)
	return next, arrives
}

// Rate bounds what a line carries in one direction, for all connections of its host in turn.
type Rate struct {
	bitsPerS int64
	mu       sync.Mutex // guards free
	free     time.Time  // when everything before is through
}

// NewRate returns a line that is free.
func NewRate(bitsPerS int) *Rate { return &Rate{bitsPerS: int64(bitsPerS)} }

// turn returns from when until when a line carries some bytes that are there at a time.
func (r *Rate) turn(at time.Time, bytes int) (from, until time.Time) {
	if r == nil {
		return at, at
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.free.After(at) {
		at = r.free
	}
	r.free = at.Add(time.Duration(8 * int64(bytes) * int64(time.Second) / r.bitsPerS))
	return at, r.free
}
