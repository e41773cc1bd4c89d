package simulate

import (
	"container/heap"
	"math/bits"
)

// happening says what a queued event is about.
type happening uint8

const (
	machineAdded happening = iota + 1
	machineReady
	machineNoticed
	machineRemoved
	phaseEnds
	copyEnds
)

// queued is one event to come. Of one moment the one that was queued first comes first.
type queued struct {
	at    int64
	order int
	what  happening
	name  string // of a machine of the trace
	slot  int    // of a machine that becomes ready
	// version says which phase or copy of the run it is about: a later one makes it void.
	version int
}

// queue holds events, the earliest first.
type queue struct {
	events eventHeap
	pushed int
}

func (q *queue) push(e queued) {
	e.order = q.pushed
	q.pushed++
	heap.Push(&q.events, e)
}

func (q *queue) pop() queued { return heap.Pop(&q.events).(queued) }

// next returns the time of the earliest event; not ok without one.
func (q *queue) next() (at int64, ok bool) {
	if len(q.events) == 0 {
		return 0, false
	}
	return q.events[0].at, true
}

type eventHeap []queued

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(queued)) }
func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	*h = (*h)[:last]
	return x
}

// mulDiv returns a * b / c without overflow of the product, bounded by farFuture. None is negative, and c is more than 0.
func mulDiv(a, b, c int64) int64 {
	high, low := bits.Mul64(uint64(a), uint64(b))
	if high >= uint64(c) {
		return farFuture
	}
	n, _ := bits.Div64(high, low, uint64(c))
	return int64(min(n, farFuture))
}

// timeOf returns how long so many bytes take at a rate.
func timeOf(bytes, bytesPerS int64) int64 { return mulDiv(bytes, second, max(bytesPerS, 1)) }
