package pipeline

import "pnode/kernels"

// copier copies between a device and the host beside the passes: its queue is not theirs. Any
// number of goroutines may use it; they take turns.
type copier struct {
	queue kernels.Queue
	turn  chan struct{} // holds one
}

func newCopier(d kernels.Device) (copier, error) {
	queue, err := d.NewQueue()
	return copier{queue: queue, turn: make(chan struct{}, 1)}, err
}

// do waits for the copies that f enqueues.
func (c *copier) do(f func(q kernels.Queue)) error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	f(c.queue)
	return c.queue.Sync()
}

// warm has the queue take what its first copy would.
func (c *copier) warm(v kernels.View) error {
	host := make([]byte, v.Len*v.Buf.DType().SizeBytes())
	return c.do(func(q kernels.Queue) { q.Read(host, v) })
}

func (c *copier) close() {
	if c.queue != nil {
		c.queue.Close()
	}
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
