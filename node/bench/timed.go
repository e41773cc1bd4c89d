package bench

import (
	"time"

	"pnode/kernels"
)

// timedDevice notes how long the calls of each class take and what they compute, on a
// device whose queues carry a call out in Do.
type timedDevice struct {
	kernels.Device
	spent map[string]time.Duration // by class
	flops int64
}

func (d *timedDevice) reset() {
	clear(d.spent)
	d.flops = 0
}

func (d *timedDevice) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &timedQueue{Queue: q, device: d}, err
}

type timedQueue struct {
	kernels.Queue
	device *timedDevice
}

func (q *timedQueue) Do(c kernels.Call) {
	begin := time.Now()
	q.Queue.Do(c)
	info := kernels.Info(c.Op)
	q.device.spent[info.Class.String()] += time.Since(begin)
	q.device.flops += info.FLOPs(c)
}
