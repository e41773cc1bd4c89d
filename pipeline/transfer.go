package pipeline

import (
	"context"
	"sync/atomic"
	"time"

	"pnode/kernels"
	"pnode/pipeline/wire"
)

// transfer is one copy between a device and the host, on the queue of a copyQueue. The one goroutine
// that carries it settles it; others wait for done.
type transfer struct {
	after kernels.Event         // the copy begins after it; nil: at once
	do    func(q kernels.Queue) // enqueues the copies
	done  chan struct{}         // closed once event or err is set; nil where nobody waits
	event kernels.Event         // recorded after the copies; nil: none are under way
	err   error                 // why there will be none
	// begin and end say when the device began and ended, once run has returned.
	begin, end time.Time

	// Of a message:
	stage *stageRun
	tag   wire.Tag
	rows  []kernels.View // its place on the device
}

// settle sets the event after the copies, or the reason why there are none. The first call counts.
func (t *transfer) settle(event kernels.Event, err error) {
	if t.event != nil || t.err != nil {
		return
	}
	t.event, t.err = event, err
	if t.done != nil {
		close(t.done)
	}
}

// copyQueue copies between a device and the host concurrently with the kernels: its queue is not
// theirs. Any number of goroutines may use it; they take turns.
type copyQueue struct {
	queue kernels.Queue
	turn  chan struct{} // holds one: a mutex would not count as waiting in virtual time
	// quantizer serves messages in int8; nil: the host packs them.
	quantizer *quantizer
}

func newCopyQueue(d kernels.Device) (copyQueue, error) {
	queue, err := d.NewQueue()
	return copyQueue{queue: queue, turn: make(chan struct{}, 1)}, err
}

// run enqueues a transfer's copies, settles it and blocks until they are done.
func (c *copyQueue) run(t *transfer) (err error) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if t.after != nil {
		c.queue.Wait(t.after)
	}
	first := c.queue.Record()
	t.do(c.queue)
	last := c.queue.Record()
	t.settle(last, nil)
	_ = first.Sync() // for its time; errors stick in the queue
	if err = c.queue.Sync(); err == nil {
		err = last.Sync()
	}
	t.begin, t.end = first.Time(), last.Time()
	return err
}

// elements counts the elements of rows.
func elements(rows []kernels.View) (n int) {
	for _, v := range rows {
		n += v.Len
	}
	return n
}

// readRows enqueues copies of rows to the host, writeRows of the host's bytes to rows.
func readRows(q kernels.Queue, host []byte, rows []kernels.View) {
	for _, v := range rows {
		q.Read(host[:4*v.Len], v)
		host = host[4*v.Len:]
	}
}

func writeRows(q kernels.Queue, rows []kernels.View, host []byte) {
	for _, v := range rows {
		q.Write(v, host[:4*v.Len])
		host = host[4*v.Len:]
	}
}

// background holds the error of one goroutine that outlives a step; nil: there is none.
type background chan error

func (b *background) start(f func() error) {
	done := make(background, 1)
	*b = done
	go func() { done <- f() }()
}

// poll returns the error of a goroutine that has ended, without waiting.
func (b *background) poll() error {
	select {
	case err := <-*b:
		*b = nil
		return err
	default:
		return nil
	}
}

// wait blocks until the goroutine has ended and returns its error once.
func (b *background) wait() error {
	if *b == nil {
		return nil
	}
	err := <-*b
	*b = nil
	return err
}

// unread counts the layers that a save has still to read. Its context ends when there are none, or
// the save has given up.
type unread struct {
	context.Context
	end  context.CancelFunc
	left atomic.Int64
}

// newUnread has n things to read, and those that are added to left.
func newUnread(n int) *unread {
	u := &unread{}
	u.Context, u.end = context.WithCancel(context.Background())
	u.left.Store(int64(n))
	return u
}

// wait blocks until nothing is left to read. A nil one has nothing.
func (u *unread) wait(ctx context.Context) error {
	if u == nil {
		return nil
	}
	select {
	case <-u.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// one notes that a layer is read.
func (u *unread) one() {
	if u.left.Add(-1) == 0 {
		u.end()
	}
}
