package mux

import (
	"sync"
	"time"
)

// chunk holds bytes that were received or are to be sent: those from r to w.
type chunk struct {
	b    [maxData]byte
	r, w int
}

var chunks = sync.Pool{New: func() any { return new(chunk) }}

// queue is a list of bytes. A chunk goes back to the pool once it has been read, but not when the queue is dropped:
// somebody may be copying out of it.
type queue struct {
	chunks []*chunk
	bytes  int
	// filling is how many of the last chunks are being written to: they stay, though all in them has been read.
	filling int
}

// tail returns the last chunk if it has room, or appends one.
func (q *queue) tail() *chunk {
	if n := len(q.chunks); n > 0 && q.chunks[n-1].w < maxData {
		return q.chunks[n-1]
	}
	c := chunks.Get().(*chunk)
	c.r, c.w = 0, 0
	q.chunks = append(q.chunks, c)
	return c
}

func (q *queue) push(p []byte) {
	q.bytes += len(p)
	for len(p) > 0 {
		c := q.tail()
		n := copy(c.b[c.w:], p)
		c.w += n
		p = p[n:]
	}
}

// reserve returns room for n bytes, at most maxData, which commit adds to the queue.
func (q *queue) reserve(n int) (room [2]*chunk) {
	room[0] = q.tail()
	q.filling = 1
	if maxData-room[0].w < n {
		c := chunks.Get().(*chunk)
		c.r, c.w = 0, 0
		q.chunks = append(q.chunks, c)
		room[1] = c
		q.filling = 2
	}
	return room
}

// commit adds the n bytes that were written to room, and reports whether the queue is still the one that it was
// reserved in.
func (q *queue) commit(room [2]*chunk, n int) bool {
	if q.filling == 0 {
		return false
	}
	q.filling = 0
	q.bytes += n
	first := min(n, maxData-room[0].w)
	room[0].w += first
	if room[1] != nil {
		room[1].w = n - first
	}
	return true
}

// front returns the first bytes, as many as lie side by side.
func (q *queue) front() []byte { return q.chunks[0].b[q.chunks[0].r:q.chunks[0].w] }

// skip takes n bytes off, which front has returned.
func (q *queue) skip(n int) {
	c := q.chunks[0]
	c.r += n
	q.bytes -= n
	if c.r < c.w || len(q.chunks) <= q.filling {
		return
	}
	q.chunks[0] = nil
	if q.chunks = q.chunks[1:]; len(q.chunks) == 0 {
		q.chunks = nil
	}
	chunks.Put(c)
}

// drop empties the queue and returns how many bytes were in it.
func (q *queue) drop() (bytes int) {
	bytes = q.bytes
	*q = queue{}
	return bytes
}

// window is a receiver's flow control of a stream or of a connection, in bytes since the beginning.
type window struct {
	received, read uint64
	limit          uint64 // what the peer was told that it may send
	size, max      uint64
	// when the size was looked at last, and what had been read then
	looked time.Time
	seen   uint64
}

func newWindow(size, most uint64) window { return window{limit: size, size: size, max: most} }

// due reports whether the peer is to be told of more room: a quarter of the window has been read.
func (w *window) due() bool { return w.limit-w.read <= w.size/4*3 }

// renew returns the new limit. The window doubles if it is read in less than four round trips, since then the sender may
// be waiting for it.
func (w *window) renew(now time.Time, rtt time.Duration) uint64 {
	if n := w.read - w.seen; n > w.size/2 && rtt > 0 {
		if now.Sub(w.looked) < time.Duration(4*float64(n)/float64(w.size)*float64(rtt)) {
			w.size = min(2*w.size, w.max)
		}
		w.looked, w.seen = now, w.read
	}
	w.limit = w.read + w.size
	return w.limit
}
