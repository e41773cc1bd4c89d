package api

import (
	"context"
	"slices"
	"sync"
	"time"
)

const (
	// HistoryEvents is how many of the newest events a new subscriber gets first.
	HistoryEvents = 1024
	// queueEvents is how many events a subscriber may lag behind beyond the history.
	queueEvents = 1024
)

// Hub keeps the newest events of a node and the History of all, and hands events to
// subscribers. Its zero value is ready. A subscriber whose queue is full is cut off: its channel is closed after the
// events that it still has queued; it can subscribe again and gets the history.
type Hub struct {
	mu          sync.Mutex // guards what follows
	seq         uint64
	history     []Event // a ring: the event of sequence s is at (s-1) % HistoryEvents
	past        History
	subscribers map[chan Event]struct{}
	closed      bool
}

// Publish numbers an event and hands it out; it never blocks. After Close it does nothing.
func (h *Hub) Publish(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	h.seq++
	e.Seq = h.seq
	h.past.note(e, time.Now())
	if len(h.history) < HistoryEvents {
		h.history = append(h.history, e)
	} else {
		h.history[(e.Seq-1)%HistoryEvents] = e
	}
	for ch := range h.subscribers {
		select {
		case ch <- e:
		default:
			h.drop(ch)
		}
	}
}

// Events subscribes until ctx is done: first the kept history, then every event to come,
// none left out. The channel is closed when ctx is done, at Close, or when the reader
// fell too far behind.
func (h *Hub) Events(ctx context.Context) <-chan Event {
	ch := make(chan Event, HistoryEvents+queueEvents)
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range uint64(len(h.history)) {
		ch <- h.history[(h.seq+i)%uint64(len(h.history))]
	}
	if h.closed {
		close(ch)
		return ch
	}
	if h.subscribers == nil {
		h.subscribers = map[chan Event]struct{}{}
	}
	h.subscribers[ch] = struct{}{}
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.drop(ch)
	})
	return ch
}

// History returns what is remembered of all events so far.
func (h *Hub) History() History {
	h.mu.Lock()
	defer h.mu.Unlock()
	past := h.past // shares nothing with the hub once its lists are copied
	for _, c := range past.curves() {
		c.Points = slices.Clone(c.Points)
	}
	past.Happened = slices.Clone(past.Happened)
	return past
}

// Close ends every subscription after the events that are queued for it. The history
// stays readable.
func (h *Hub) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for ch := range h.subscribers {
		h.drop(ch)
	}
}

// drop ends a subscription once; the caller holds mu.
func (h *Hub) drop(ch chan Event) {
	if _, ok := h.subscribers[ch]; ok {
		delete(h.subscribers, ch)
		close(ch)
	}
}
