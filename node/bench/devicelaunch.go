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

// replayed is how long calls take that are made again, in seconds: the device, which is known by its
// clock alone, and the host to enqueue them.
type replayed struct {
	clock        bool
	device, host float64
}

// replay makes the calls that were noted again, several times over in one go: the device has them
// before it needs them and never waits for the host, if that enqueues them faster. What they take the
// device once is from one event of its own to the next. What stands between two kernels on the device
// itself so counts as the device's time.
func (d *recordedDevice) replay() (r replayed, err error) {
	replays := d.replays
	if d.replays = 0; replays == 0 {
		return r, nil
	}
	q, err := d.Device.NewQueue()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	for range 2 { // takes memory and makes graphs; clocks are compared at an event behind it
		d.again(q)
		q.Record()
		if err := q.Sync(); err != nil {
			return r, err
		}
	}
	begin := time.Now()
	d.again(q) // the host gets ahead
	r.host = time.Since(begin).Seconds()
	marks := []kernels.Event{q.Record()}
	for range replays {
		d.again(q)
		marks = append(marks, q.Record())
	}
	if r.clock, err = clocked(marks); err != nil || !r.clock {
		return r, err
	}
	var took []float64
	for i, m := range marks[1:] {
		took = append(took, m.Time().Sub(marks[i].Time()).Seconds())
	}
	r.device = median(took)
	return r, nil
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

// launches are what steps of a training took by round, in seconds: whole ones, and their calls alone.
type launches struct {
	micro               int
	clock               bool // in all rounds
	steps, alone, hosts []float64
}

// launch compares the time of steps with that of their calls alone.
func (b *deviceBench) launch(ctx context.Context, row *DeviceRow) error {
	m := b.size.step
	if b.batch > 0 {
		m.Batch = b.batch
	}
	var took launches
	_, err := fitting(m, func(m StepModel) (err error) {
		took, err = b.launches(ctx, m)
		return err
	})
	if err != nil {
		return err
	}
	return took.judge(row)
}

func (b *deviceBench) launches(ctx context.Context, m StepModel) (l launches, err error) {
	own, err := b.own(ctx, deviceTask{Kind: stepTask, Model: m, Storage: model.StorageBF16})
	if err != nil {
		return l, err
	}
	defer closing(own, &err)
	var warm answer
	for range 2 {
		if warm, err = own.ask(stepRequest{Steps: 1}); err != nil {
			return l, err
		}
	}
	l = launches{micro: m.Batch, clock: true}
	request := stepRequest{Steps: roundSteps(time.Duration(warm.Seconds * float64(time.Second)))}
	for range b.o.Rounds {
		whole, err := own.ask(request)
		if err != nil {
			return l, err
		}
		again, err := own.ask(stepRequest{Steps: 1, Replays: replays})
		if err != nil {
			return l, err
		}
		l.clock = l.clock && again.DeviceClock
		l.steps = append(l.steps, whole.Seconds/float64(request.Steps))
		l.alone, l.hosts = append(l.alone, again.DeviceSeconds), append(l.hosts, again.HostSeconds)
	}
	return l, nil
}

// withoutClock is said of devices that tell no times.
const withoutClock = "the device does not tell when it comes to events, the host notices it"

// judge fills a row, or says why these times tell nothing of the device.
func (l launches) judge(row *DeviceRow) error {
	row.Note = fmt.Sprintf("micro-batch %d: the host enqueues the calls of a step in %s ms", l.micro, figure(1e3*median(l.hosts)))
	if !l.clock {
		return lacking{errors.New(withoutClock)}
	}
	if host, alone := median(l.hosts), median(l.alone); host >= alone {
		return lacking{fmt.Errorf("the host enqueues calls in %s ms, and the device takes %s ms when they are made again: it does not get ahead of the device", figure(1e3*host), figure(1e3*alone))}
	}
	var shares []float64
	for i, step := range l.steps {
		shares = append(shares, 100*(1-l.alone[i]/step))
	}
	row.Value = max(0, median(shares)) // less is noise
	row.Note += fmt.Sprintf(", which takes %s ms; the device takes %s ms for them where it never waits for the host", figure(1e3*median(l.steps)), figure(1e3*median(l.alone)))
	return nil
}
