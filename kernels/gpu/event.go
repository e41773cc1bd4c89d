package gpu

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"pnode/kernels"
)

// event is a mark on a queue's stream.
type event struct {
	queue   *queue
	checked bool // whether a kernel before it may have set the fault word

	// The queue's marks guard all below.
	mark    Mark // 0 once it is another event's
	waiting int  // who use the mark
	came    bool
	at      time.Time
	err     error
}

// marks keeps the marks of a queue's events.
type marks struct {
	mu   sync.Mutex // guards all below and what events say of theirs
	live []*event   // that have a mark, in order
	free []Mark     // to be recorded again
	// base is when the host's clock was compared with the device's, where that has one.
	base   Mark
	baseAt time.Time
}

// maxLive bounds the events of a queue that nobody has waited for on the host: then the queue does.
const maxLive = 256

// Record marks the stream.
func (q *queue) Record() kernels.Event {
	if q.err != nil {
		return kernels.Passed{Err: q.err, At: time.Now()}
	}
	if oldest := q.marks.oldest(); oldest != nil {
		_ = oldest.Sync() // comes out at the queue's, too
	}
	q.marks.mu.Lock()
	defer q.marks.mu.Unlock()
	mark, err := q.stream.Record(q.marks.used())
	if err != nil {
		if mark != 0 {
			q.marks.free = append(q.marks.free, mark)
		}
		q.err = fmt.Errorf("%s: %w", q.dev.Name(), err)
		return kernels.Passed{Err: q.err, At: time.Now()}
	}
	e := &event{queue: q, checked: q.checked, mark: mark}
	q.marks.live = append(q.marks.live, e)
	return e
}

// Wait has the stream wait.
func (q *queue) Wait(e kernels.Event) {
	if q.err != nil {
		return
	}
	switch e := e.(type) {
	case kernels.Passed:
		q.err = e.Err
	case *event:
		if e.queue.dev == q.dev {
			q.await(e)
			return
		}
		q.err = fmt.Errorf("%w: %s: an event of %s", kernels.ErrBadCall, q.dev.Name(), e.queue.dev.Name())
	default:
		q.err = fmt.Errorf("%w: %s: an event of another device", kernels.ErrBadCall, q.dev.Name())
	}
}

func (q *queue) await(e *event) {
	m := &e.queue.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	if q.err = e.err; q.err != nil || e.came {
		return
	}
	if err := q.stream.Await(e.mark); err != nil {
		q.err = fmt.Errorf("%s: %w", q.dev.Name(), err)
	}
}

// Sync waits for the mark.
func (e *event) Sync() error {
	q := e.queue
	if mark := q.marks.hold(e); mark != 0 {
		err := q.dev.driver.Reach(mark)
		at := time.Now() // reading the fault word takes time, too
		if err == nil && e.checked {
			err = q.readFault()
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", q.dev.Name(), err)
		}
		q.marks.release(q.dev.driver, e, at, err)
	}
	q.marks.mu.Lock()
	defer q.marks.mu.Unlock()
	return e.err
}

func (e *event) Time() time.Time {
	e.queue.marks.mu.Lock()
	defer e.queue.marks.mu.Unlock()
	return e.at
}

// oldest is the event to wait for where there are too many.
func (m *marks) oldest() *event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.live) < maxLive {
		return nil
	}
	return m.live[0]
}

// used takes a mark that is to be recorded again, 0 for a new one.
func (m *marks) used() (mark Mark) {
	if n := len(m.free); n > 0 {
		mark, m.free = m.free[n-1], m.free[:n-1]
	}
	return mark
}

// hold gives the mark of an event that has not come as far as is known, to be released.
func (m *marks) hold(e *event) Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.came {
		return 0
	}
	e.waiting++
	return e.mark
}

// release notes that an event has come, and so all before it, or failed. An error of the fault word
// may be that of a later kernel, which has run meanwhile.
func (m *marks) release(d Driver, e *event, at time.Time, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.waiting--
	if err != nil {
		e.come(d, at, err)
		return
	}
	m.come(d, at, slices.Index(m.live, e)+1)
}

// come notes that the first n events have come, and takes back their marks.
func (m *marks) come(d Driver, at time.Time, n int) {
	for _, e := range m.live[:n] {
		e.come(d, at, nil)
	}
	m.live = slices.DeleteFunc(m.live, func(e *event) bool {
		done := e.came && e.waiting == 0
		if done {
			m.free, e.mark = append(m.free, e.mark), 0
		}
		return done
	})
}

// come notes when, once.
func (e *event) come(d Driver, at time.Time, err error) {
	if e.came {
		return
	}
	m := &e.queue.marks
	e.came, e.at, e.err = true, at, err
	if m.base == 0 || err != nil {
		return
	}
	if since, ok := d.Between(m.base, e.mark); ok {
		e.at = m.baseAt.Add(since)
	}
}

// baseAge is how long clocks are compared once: what the device tells has seven digits.
const baseAge = 10 * time.Second

// all notes that the stream has been waited for, and compares clocks.
func (m *marks) all(s Stream, d Driver) (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.come(d, time.Now(), len(m.live))
	if len(m.free) == 0 || m.base != 0 && time.Since(m.baseAt) < baseAge {
		return nil
	}
	if m.base == 0 {
		m.base = m.used()
	}
	if m.base, err = s.Record(m.base); err == nil {
		err = d.Reach(m.base)
	}
	m.baseAt = time.Now()
	return err
}

// fail notes that the stream has failed.
func (m *marks) fail(d Driver, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.live {
		e.come(d, time.Now(), err)
	}
}

// drop gives all marks back. None is waited for.
func (m *marks) drop(d Driver) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.come(d, time.Now(), len(m.live))
	var errs []error
	for _, mark := range append(m.free, m.base) {
		if mark != 0 {
			errs = append(errs, d.Drop(mark))
		}
	}
	m.free, m.base = nil, 0
	return errors.Join(errs...)
}
