package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"pnode/kernels"
	"pnode/pipeline/model"
)

// recordedDevice can note what calls the queues of a device are given, to make them again. What
// else a device may be able to do it passes on.
type recordedDevice struct {
	kernels.Device
	replays int // of what is noted; 0: nothing is
	calls   []kernels.Call
}

func (d *recordedDevice) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &recordedQueue{q, d}, err
}

func (d *recordedDevice) Distant() bool {
	distant, ok := d.Device.(kernels.Distant)
	return ok && distant.Distant()
}

func (d *recordedDevice) LimitMemory(bytes int64) {
	if limited, ok := d.Device.(kernels.Limited); ok {
		limited.LimitMemory(bytes)
	}
}

func (d *recordedDevice) MemoryLeft() int64 {
	if limited, ok := d.Device.(kernels.Limited); ok {
		return limited.MemoryLeft()
	}
	return math.MaxInt64
}

func (d *recordedDevice) MaxBufferBytes() int64 {
	if portioned, ok := d.Device.(kernels.Portioned); ok {
		return portioned.MaxBufferBytes()
	}
	return math.MaxInt64
}

type recordedQueue struct {
	kernels.Queue
	device *recordedDevice
}

func (q *recordedQueue) Do(c kernels.Call) {
	if q.device.replays > 0 {
		q.device.calls = append(q.device.calls, c)
	}
	q.Queue.Do(c)
}

func (q *recordedQueue) Prepare(c kernels.Call) error {
	if preparer, ok := q.Queue.(kernels.Preparer); ok {
		return preparer.Prepare(c)
	}
	return nil
}

// record begins to note what is to be made again so often, or nothing.
func (d *recordedDevice) record(replays int) {
	d.replays, d.calls = replays, d.calls[:0]
}

// replay makes the calls that were noted again, several times over in one go: the device has them
// before it needs them and never waits for the host. It gives what they take the device once, from
// one event of its own to the next, and how long the host takes to enqueue them. What stands between
// two kernels on the device itself so counts as the device's time.
func (d *recordedDevice) replay() (device, host float64, err error) {
	replays := d.replays
	if d.replays = 0; replays == 0 {
		return 0, 0, nil
	}
	q, err := d.Device.NewQueue()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	for range 2 { // takes memory and makes graphs; clocks are compared at an event behind it
		d.again(q)
		q.Record()
		if err := q.Sync(); err != nil {
			return 0, 0, err
		}
	}
	begin := time.Now()
	d.again(q) // the host gets ahead
	host = time.Since(begin).Seconds()
	marks := []kernels.Event{q.Record()}
	for range replays {
		d.again(q)
		marks = append(marks, q.Record())
	}
	var took []float64
	for i, m := range marks { // in their order: a device without a clock is watched
		if err := m.Sync(); err != nil {
			return 0, 0, err
		}
		if i > 0 {
			took = append(took, m.Time().Sub(marks[i-1].Time()).Seconds())
		}
	}
	return median(took), host, nil
}

func (d *recordedDevice) again(q kernels.Queue) {
	for _, c := range d.calls {
		q.Do(c)
	}
}

func (b *deviceBench) launchCells() []cell {
	return []cell{{
		rows: []DeviceRow{{
			Row: rowLaunch, Unit: "% of the step",
			What: fmt.Sprintf("step of %s without work for the device", b.size.step.Name),
		}},
		goals:   []goal{atMost(3, "%")},
		measure: func(ctx context.Context, rows []DeviceRow) error { return b.launch(ctx, &rows[0]) },
	}}
}

// replays is how often the calls of a step are made again.
const replays = 3

// launch compares the time of steps with that of their calls alone.
func (b *deviceBench) launch(ctx context.Context, row *DeviceRow) error {
	m := b.size.step
	if b.batch > 0 {
		m.Batch = b.batch
	}
	var shares, steps, alone, hosts []float64
	m, err := fitting(m, func(m StepModel) (err error) {
		own, err := b.own(ctx, deviceTask{Kind: stepTask, Model: m, Storage: model.StorageBF16})
		if err != nil {
			return err
		}
		defer closing(own, &err)
		warm, err := own.ask(stepRequest{Steps: 1})
		if err == nil {
			warm, err = own.ask(stepRequest{Steps: 1})
		}
		request := stepRequest{Steps: roundSteps(time.Duration(warm.Seconds * float64(time.Second)))}
		for range b.o.Rounds {
			if err != nil {
				return err
			}
			var whole, again answer
			if whole, err = own.ask(request); err != nil {
				return err
			}
			again, err = own.ask(stepRequest{Steps: 1, Replays: replays})
			step := whole.Seconds / float64(request.Steps)
			steps, alone, hosts = append(steps, step), append(alone, again.DeviceSeconds), append(hosts, again.HostSeconds)
			shares = append(shares, 100*(1-again.DeviceSeconds/step))
		}
		return err
	})
	if err != nil {
		return err
	}
	row.Value = median(shares)
	row.Note = fmt.Sprintf("micro-batch %d: a step takes %s ms, its calls %s ms where the device never waits for the host, which enqueues them in %s ms",
		m.Batch, figure(1e3*median(steps)), figure(1e3*median(alone)), figure(1e3*median(hosts)))
	return nil
}
