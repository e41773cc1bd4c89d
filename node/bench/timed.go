package bench

import (
	"time"

	"pnode/kernels"
)

// timedDevice notes how long the calls of each class take, on a device whose queues carry
// a call out in Do.
type timedDevice struct {
	kernels.Device
	spent map[string]time.Duration // by class
}

func (d *timedDevice) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &timedQueue{Queue: q, spent: d.spent}, err
}

type timedQueue struct {
	kernels.Queue
	spent map[string]time.Duration
}

func (q *timedQueue) Do(c kernels.Call) {
	begin := time.Now()
	q.Queue.Do(c)
	q.spent[kernels.Info(c.Op).Class.String()] += time.Since(begin)
}
