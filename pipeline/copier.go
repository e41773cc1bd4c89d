package pipeline

import (
	"time"

	"pnode/kernels"
)

// copier copies between a device and the host beside the passes: its queue is not theirs. Any
// number of goroutines may use it; they take turns.
type copier struct {
	queue kernels.Queue
	turn  chan struct{} // holds one
	// packing is for messages in int8 while they are copied; nil: the host packs them.
	packing *packing
}

func newCopier(d kernels.Device) (copier, error) {
	queue, err := d.NewQueue()
	return copier{queue: queue, turn: make(chan struct{}, 1)}, err
}

// copied is what is to be copied, and when.
type copied struct {
	after kernels.Event // until then the device's memory is not to be touched; nil: it may be
	copy  func(q kernels.Queue)
	// under, unless nil, is told of the event behind the copies as soon as they are under way.
	under func(kernels.Event)
}

// do enqueues copies and waits for them. It tells when the device began with them, and ended.
func (c *copier) do(w copied) (begin, end time.Time, err error) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if w.after != nil {
		c.queue.Wait(w.after)
	}
	first := c.queue.Record()
	w.copy(c.queue)
	last := c.queue.Record()
	if w.under != nil {
		w.under(last)
	}
	_ = first.Sync() // for its time; errors stick in the queue
	if err = c.queue.Sync(); err == nil {
		err = last.Sync()
	}
	return first.Time(), last.Time(), err
}

func (c *copier) close() {
	if c.queue != nil {
		c.queue.Close()
	}
}

// warm has a queue take what its first copy would.
func warm(q kernels.Queue, v kernels.View) error {
	q.Read(make([]byte, v.Len*v.Buf.DType().SizeBytes()), v)
	return q.Sync()
}

// readRows copies rows to the host, writeRows brings them back.
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
