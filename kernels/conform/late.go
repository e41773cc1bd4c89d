package conform

import (
	"slices"
	"sync"
	"time"

	"pnode/kernels"
)

// Late is a device that begins with nothing before it is waited for, and then takes its time: what
// the contract allows. A program that does not wait where it has to computes with what was there
// before. In a bubble of testing/synctest the times are exact.
type Late struct {
	kernels.Device
	// Call, Write and Read are what a row of calls and copies takes, whichever is longest.
	Call, Write, Read time.Duration
}

// NewQueue gives a queue over one of the device.
func (d *Late) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &lateQueue{inner: q, dev: d, turn: make(chan struct{}, 1)}, err
}

type lateQueue struct {
	inner kernels.Queue // of the one whose turn it is
	dev   *Late
	turn  chan struct{} // holds one

	mu   sync.Mutex // guards todo
	todo []lateItem
}

// lateItem is something to do, or to wait for, or an event that comes.
type lateItem struct {
	took  time.Duration
	do    func()
	after *lateEvent
	event *lateEvent
}

type lateEvent struct {
	queue *lateQueue
	done  chan struct{} // closed when it has come
	inner kernels.Event // from then on
}

func (q *lateQueue) later(i lateItem) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.todo = append(q.todo, i)
}

func (q *lateQueue) Do(c kernels.Call) {
	q.later(lateItem{took: q.dev.Call, do: func() { q.inner.Do(c) }})
}

func (q *lateQueue) Write(dst kernels.View, src []byte) {
	q.later(lateItem{took: q.dev.Write, do: func() { q.inner.Write(dst, src) }})
}

func (q *lateQueue) Read(dst []byte, src kernels.View) {
	q.later(lateItem{took: q.dev.Read, do: func() { q.inner.Read(dst, src) }})
}

func (q *lateQueue) Record() kernels.Event {
	e := &lateEvent{queue: q, done: make(chan struct{})}
	q.later(lateItem{event: e})
	return e
}

func (q *lateQueue) Wait(e kernels.Event) {
	q.later(lateItem{after: e.(*lateEvent)}) // others are of another device
}

func (q *lateQueue) Sync() error {
	q.Record().(*lateEvent).come()
	q.turn <- struct{}{}
	defer func() { <-q.turn }()
	return q.inner.Sync()
}

func (q *lateQueue) Close() error {
	err := q.Sync()
	if closed := q.inner.Close(); err == nil {
		err = closed
	}
	return err
}

// come returns when what is before the event is done, by whoever waits for it first.
func (e *lateEvent) come() {
	select {
	case <-e.done:
		return
	case e.queue.turn <- struct{}{}:
	}
	e.queue.reach(e)
	<-e.queue.turn
}

// reach does what is before an event; the caller has the turn.
func (q *lateQueue) reach(e *lateEvent) {
	for {
		row, ok := q.next(e)
		if !ok {
			return
		}
		if first := row[0]; first.after != nil {
			first.after.come()
			q.inner.Wait(first.after.inner)
			continue
		} else if first.event != nil {
			first.event.inner = q.inner.Record()
			close(first.event.done)
			continue
		}
		time.Sleep(slices.MaxFunc(row, func(a, b lateItem) int { return int(a.took - b.took) }).took)
		for _, i := range row {
			i.do()
		}
	}
}

// next takes an event, a wait or a row of calls and copies; ok is false when e has come.
func (q *lateQueue) next(e *lateEvent) (row []lateItem, ok bool) {
	select {
	case <-e.done:
		return nil, false
	default:
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 1
	if q.todo[0].do != nil {
		for n < len(q.todo) && q.todo[n].do != nil {
			n++
		}
	}
	row, q.todo = q.todo[:n:n], q.todo[n:]
	return row, true
}

// Sync waits.
func (e *lateEvent) Sync() error {
	e.come()
	return e.inner.Sync()
}

// Time is when somebody waited, and the device had done it.
func (e *lateEvent) Time() time.Time { return e.inner.Time() }
