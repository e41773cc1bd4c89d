package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"pnode/kernels"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// busyCells returns the rows that say how well a device is kept busy. One process measures each.
func (b *deviceBench) busyCells() (cells []cell) {
	atMost3 := goal{text: "<= 3%", met: func(r DeviceRow) bool { return r.Value <= 3 }}
	for _, row := range []DeviceRow{
		{Row: rowLaunch, Unit: "% of the step", What: "step of " + b.size.step.Name + " without work for the device", goal: atMost3},
		{Row: rowCopies, Unit: "% of their time", What: "copies of messages beside passes, 2 stages of " + b.size.step.Name},
	} {
		measure := func(ctx context.Context, m StepModel) (a answer, err error) {
			own, err := b.own(ctx, task{Kind: row.Row, Model: m, Storage: model.StorageBF16}, false)
			if err != nil {
				return a, err
			}
			defer closing(own, &err)
			return own.ask(stepRequest{b.o.Rounds})
		}
		cells = append(cells, cell{[]DeviceRow{row}, func(ctx context.Context, rows []DeviceRow) error {
			a, err := fitting(b.size.step, func(m StepModel) (answer, error) { return measure(ctx, m) })
			if err == nil && a.Lacks != "" {
				err = lacking{errors.New(a.Lacks)}
			}
			rows[0].Value, rows[0].Note = a.Percent, a.Note
			return err
		}})
	}
	return cells
}

// launches measures the share of a training step in which the device has nothing to do: the time of a
// step less what its calls take when they are made again in one go. Gaps between kernels there count
// as work.
func (t task) launches(ctx context.Context, device kernels.Device, rounds int) (a answer, err error) {
	watched := &watchedDevice{Device: device}
	s, err := t.train(ctx, watched)
	if err != nil {
		return a, err
	}
	defer s.close()
	var whole []float64
	for i := range 2 + rounds {
		if i > 0 { // before the first step the worker may still be loading
			watched.calls, watched.recording = nil, true
		}
		step, err := s.run(stepRequest{1})
		if err != nil {
			return a, err
		}
		if i >= 2 { // the first two warm up
			whole = append(whole, step.Seconds)
		}
	}
	watched.recording = false
	busy, host, err := watched.replay(rounds)
	if err != nil {
		return a, err
	}
	a.Note = fmt.Sprintf("micro-batch %d: the host enqueues the calls of a step in %s ms", t.Model.Batch, figure(1e3*host))
	switch step := median(whole); {
	case busy == 0:
		a.Lacks = "the device does not say when it comes to events"
	case host >= busy:
		a.Lacks = fmt.Sprintf("the host does not get ahead of the device, which takes %s ms for the calls", figure(1e3*busy))
	default:
		a.Percent = max(0, 100*(1-busy/step)) // less is noise
		a.Note += fmt.Sprintf(", the device takes %s ms for them alone and %s ms for the step", figure(1e3*busy), figure(1e3*step))
	}
	return a, nil
}

// replay makes the recorded calls again, several times over in one go, so that the device has them
// before it needs them. It returns the seconds that one replay takes the device, by its own events,
// and the host to enqueue. The former is 0 where the device has no clock.
func (d *watchedDevice) replay(times int) (busy, host float64, err error) {
	q, err := d.Device.NewQueue()
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	again := func() kernels.Event {
		for _, c := range d.calls {
			q.Do(c)
		}
		return q.Record()
	}
	for range 2 { // takes memory and makes graphs; clocks are compared at an event after them
		again()
		if err := q.Sync(); err != nil {
			return 0, 0, err
		}
	}
	begin := time.Now()
	marks := []kernels.Event{again()} // the host gets ahead
	host = time.Since(begin).Seconds()
	for range times {
		marks = append(marks, again())
	}
	if clock, err := clocked(marks); err != nil || !clock {
		return 0, host, err
	}
	var took []float64
	for i, m := range marks[1:] {
		took = append(took, m.Time().Sub(marks[i].Time()).Seconds())
	}
	return median(took), host, nil
}

// clocked waits for events of a queue, the last one first, and reports whether the device says when
// it came to each. A device without a clock is seen to have come to all of them with the last; a queue
// that does each call at once records when the host got there.
func clocked(events []kernels.Event) (bool, error) {
	for _, e := range slices.Backward(events) {
		if err := e.Sync(); err != nil {
			return false, err
		}
	}
	for i, e := range events {
		if _, passed := e.(kernels.Passed); passed || i > 0 && !e.Time().After(events[i-1].Time()) {
			return false, nil
		}
	}
	return true, nil
}

// copies measures how much of the copies of messages between host and device runs beside passes of the
// same stage, in a pipeline of two stages on the device. A copy's times are by the device's events, or
// as the host notices them.
func (t task) copies(ctx context.Context, device kernels.Device, rounds int) (a answer, err error) {
	const micros, ahead = 8, 3 // the first stage is ahead as in a plan that hides a link
	m := t.Model
	run := newRun(m.config())
	run.Train.Micros, run.Train.MicroBatch, run.Train.Storage = micros, m.Batch, plan.Storage(t.Storage)
	middle, end := m.config().Layers()/2, m.config().Layers()
	pipe := plan.Pipeline{Micros: micros, Warmups: []int{ahead, 0}}
	for s, layers := range []plan.LayerRange{{First: 0, End: middle}, {First: middle, End: end}} {
		pipe.Stages = append(pipe.Stages, plan.Placement{Peer: plan.PeerID(fmt.Sprintf("bench-%d", s)), Device: device.Name(), Codec: "f32", Layers: layers})
	}
	p := plan.Plan{Run: benchRun, Generation: 1, Schedule: "1f1b", Replicas: []plan.Pipeline{pipe}}
	boxes := &sync.Map{}
	var configs []pipeline.Config
	for _, worker := range p.Workers() {
		configs = append(configs, unattended(pipeline.Config{
			Worker: worker, Run: run, Plan: p, Device: device, Exchange: counter{boxes, worker.Peer}, Data: randomTokens{vocab: m.Vocab, context: m.Context},
		}))
	}
	steps := 1 + rounds // the first one warms up
	ran, err := traced(ctx, steps, configs)
	if err != nil {
		return a, err
	}
	n, all, beside := hidden(ran, 2, plan.Step(steps))
	if n == 0 {
		a.Lacks = "there were no copies: the device's memory is the host's"
		return a, nil
	}
	a.Percent = 100 * beside / all
	bytes := float64(4 * n * m.Batch * m.Context * m.Channels)
	a.Note = fmt.Sprintf("micro-batches of %d: the copies of a step take %s ms, at %s GB/s", m.Batch, figure(1e3*all/float64(rounds)), figure(bytes/all/1e9))
	return a, nil
}

// hidden returns how many copies there are in steps from first to last, the sum of their seconds, and
// those in which the worker that copies computed. Its passes come one after the other.
func hidden(t trace.Trace, first, last plan.Step) (n int, all, beside float64) {
	for _, c := range t.Copies {
		if c.Step < first || c.Step > last {
			continue
		}
		n++
		all += float64(c.End-c.Start) / 1e9
		for _, s := range t.Spans {
			switch s.Action.Op {
			case schedule.Forward, schedule.Backward, schedule.BackwardInput, schedule.BackwardWeight:
				if s.Worker == c.Worker {
					beside += float64(max(0, min(s.End, c.End)-max(s.Start, c.Start))) / 1e9
				}
			}
		}
	}
	return n, all, beside
}

// counter is one peer's exchange with others of this process: one box for each message.
type counter struct {
	boxes *sync.Map
	self  plan.PeerID
}

type address struct {
	from, to plan.PeerID
	tag      wire.Tag
}

func (c counter) box(a address) chan []byte {
	box, _ := c.boxes.LoadOrStore(a, make(chan []byte, 1))
	return box.(chan []byte)
}

func (c counter) Send(_ context.Context, to plan.PeerID, f wire.Frame) error {
	c.box(address{c.self, to, f.Tag}) <- f.Payload // a tag is used once
	return nil
}

func (c counter) Receive(ctx context.Context, from plan.PeerID, tag wire.Tag) ([]byte, error) {
	at := address{from, c.self, tag}
	select {
	case payload := <-c.box(at):
		c.boxes.Delete(at)
		return payload, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// watchedDevice notes how long the calls of each class take and what they compute, on a device whose
// queues carry a call out in Do. While it records, it keeps the calls to make them again.
type watchedDevice struct {
	kernels.Device
	spent     map[string]time.Duration // by class; nil notes none
	flops     int64
	recording bool
	calls     []kernels.Call
}

// MaxBufferBytes returns the device's limit, if it has one.
func (d *watchedDevice) MaxBufferBytes() int64 {
	if portioned, ok := d.Device.(kernels.Portioned); ok {
		return portioned.MaxBufferBytes()
	}
	return math.MaxInt64
}

// NewQueue returns a queue whose calls are noted.
func (d *watchedDevice) NewQueue() (kernels.Queue, error) {
	q, err := d.Device.NewQueue()
	return &watchedQueue{Queue: q, device: d}, err
}

type watchedQueue struct {
	kernels.Queue
	device *watchedDevice
}

// Do enqueues a call and notes it.
func (q *watchedQueue) Do(c kernels.Call) {
	begin := time.Now()
	q.Queue.Do(c)
	if d := q.device; d.spent != nil {
		info := kernels.Info(c.Op)
		d.spent[info.Class.String()] += time.Since(begin)
		d.flops += info.FLOPs(c)
	}
	if q.device.recording {
		q.device.calls = append(q.device.calls, c)
	}
}
