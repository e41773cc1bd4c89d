package link

import (
	"container/heap"
	"time"
)

// packet is on its way until due.
type packet[A any] struct {
	data  []byte
	other A // the end that it comes from or goes to
	due   time.Time
	turn  uint64 // order among packets due at once
}

// packets are on their way; the one that is due first comes out first. The mutex of what they
// belong to guards them.
type packets[A any] struct {
	heap  packetHeap[A]
	turns uint64
	bytes int
}

// maxOnTheWay bounds the bytes of packets on their way; what comes on top is dropped.
const maxOnTheWay = 64 << 20

// add takes a packet, and tells whether it comes out before all others.
func (q *packets[A]) add(p packet[A]) (first bool) {
	if q.bytes+len(p.data) > maxOnTheWay {
		return false
	}
	q.turns++
	p.turn = q.turns
	q.bytes += len(p.data)
	heap.Push(&q.heap, p)
	return q.heap[0].turn == p.turn
}

// next is how long it is until the next packet comes out; not ok when there is none.
func (q *packets[A]) next(now time.Time) (wait time.Duration, ok bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].due.Sub(now), true
}

// take gives the packet that comes out next.
func (q *packets[A]) take() packet[A] {
	p := heap.Pop(&q.heap).(packet[A])
	q.bytes -= len(p.data)
	return p
}

// clear drops all.
func (q *packets[A]) clear() { q.heap, q.bytes = nil, 0 }

// packetHeap has the packet that is due first at its top.
type packetHeap[A any] []packet[A]

func (h packetHeap[A]) Len() int { return len(h) }
func (h packetHeap[A]) Less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].turn < h[j].turn
}
func (h packetHeap[A]) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *packetHeap[A]) Push(p any)   { *h = append(*h, p.(packet[A])) }
func (h *packetHeap[A]) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = packet[A]{}
	*h = old[:len(old)-1]
	return p
}
