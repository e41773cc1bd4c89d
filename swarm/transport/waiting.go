package transport

import (
	"sync"
	"time"
)

// Waiting is how calls of a stream's Read, or those of its Write, wait: one at a time, until something has changed or the deadline is
// over. Who makes streams calls its methods with the connection's lock held, but for Lock and Unlock, which go around a call.
type Waiting struct {
	sync.Mutex               // held by the call
	changed    chan struct{} // capacity 1
	deadline   time.Time     // the zero time is none
}

// NewWaiting returns a Waiting without a deadline.
func NewWaiting() *Waiting { return &Waiting{changed: make(chan struct{}, 1)} }

// Changed has the call look again.
func (w *Waiting) Changed() {
	select {
	case w.changed <- struct{}{}:
	default: // it will look anyway
	}
}

// SetDeadline has the call, and those after it, end at a time; the zero time is none.
func (w *Waiting) SetDeadline(t time.Time) {
	w.deadline = t
	w.Changed()
}

// Late reports whether the deadline is over.
func (w *Waiting) Late() bool { return !w.deadline.IsZero() && !time.Now().Before(w.deadline) }

// Wait blocks until something has changed, the deadline is over, or the connection is. The connection's lock is free meanwhile.
func (w *Waiting) Wait(conn sync.Locker, over <-chan struct{}) {
	deadline := w.deadline
	conn.Unlock()
	defer conn.Lock()
	var late <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-w.changed:
	case <-late:
	case <-over:
	}
}
