package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/devices"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

var (
	busyDevice = flag.String("device", devices.CPU, "what BenchmarkLaunches and BenchmarkCopies run on, for example cuda:0")
	busySize   = flag.String("size", "small", "size of what they train: full, small")
)

// open returns the device and the model of a benchmark.
func openBusy(b *testing.B) (kernels.Device, StepModel) {
	b.Helper()
	device, err := devices.OpenHere(devices.Finding{Name: *busyDevice}, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = device.Close() })
	at := slices.Index(DeviceSizes(), *busySize)
	if at < 0 {
		b.Fatalf("-size is %q: take one of %v", *busySize, DeviceSizes())
	}
	return device, deviceSizes[at].step.sized(deviceSizes[at].step.Context, 4)
}

// BenchmarkLaunches measures the share of a training step in which the device has nothing to do: the
// time of a step less what its calls take when they are made again in one go. Gaps between kernels
// there count as work. It needs a device that says when it came to events, and a host that enqueues
// calls faster than the device makes them.
func BenchmarkLaunches(b *testing.B) {
	device, m := openBusy(b)
	recorded := &recordedDevice{Device: device}
	s, err := task{Kind: stepTask, Model: m, Storage: model.StorageBF16}.train(b.Context(), recorded)
	if err != nil {
		b.Fatal(err)
	}
	defer s.close()
	step := func(steps int) answer {
		a, err := s.run(stepRequest{steps})
		if err != nil {
			b.Fatal(err)
		}
		return a
	}
	step(2) // warms up
	var whole []float64
	for b.Loop() {
		whole = append(whole, step(1).Seconds)
	}
	recorded.recording = true
	step(1)
	recorded.recording = false
	r, err := recorded.replay(3)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(1e3*r.host, "host-ms/op")
	switch {
	case !r.clock:
		b.Log("the device does not say when it comes to events: how long it takes for the calls alone is not known")
	case r.host >= r.device:
		b.Logf("the host enqueues calls in %v s, and the device takes %v s: it does not get ahead", r.host, r.device)
	default:
		b.ReportMetric(1e3*r.device, "device-ms/op")
		b.ReportMetric(100*(1-r.device/median(whole)), "%idle")
	}
}

// recordedDevice can note the calls that its queues are given, to make them again. It passes on
// everything else that a device may be able to do.
type recordedDevice struct {
	kernels.Device
	recording bool
	calls     []kernels.Call
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
	if q.device.recording {
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

// replayed holds how long the recorded calls take, in seconds: the device, which is known by its
// clock alone, and the host to enqueue them.
type replayed struct {
	clock        bool
	device, host float64
}

// replay makes the recorded calls again, several times over in one go, so that the device has them
// before it needs them. One replay takes the device from one event of its own to the next.
func (d *recordedDevice) replay(times int) (r replayed, err error) {
	q, err := d.Device.NewQueue()
	if err != nil {
		return r, err
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
			return r, err
		}
	}
	begin := time.Now()
	marks := []kernels.Event{again()} // the host gets ahead
	r.host = time.Since(begin).Seconds()
	for range times {
		marks = append(marks, again())
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

// TestReplay makes a recorded call again: twice to warm up, once to get ahead, and as often as asked.
func TestReplay(t *testing.T) {
	processor, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer processor.Close()
	d := &recordedDevice{Device: processor}
	q, err := d.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	buffer, err := d.Alloc(kernels.F32, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer buffer.Free()
	x := kernels.Whole(buffer)
	q.Do(kernels.Fill(x, 1, 1))
	d.recording = true
	q.Do(kernels.Scale(x, 1, 2))
	d.recording = false
	if r, err := d.replay(3); err != nil || r.clock || r.device != 0 || r.host <= 0 {
		t.Fatalf("%+v of a device without a clock: %v", r, err)
	}
	q.Do(kernels.Scale(x, 1, 2)) // not recorded any more
	got := make([]float32, 1)
	q.Read(kernels.Float32Bytes(got), x)
	if err := q.Sync(); err != nil {
		t.Fatal(err)
	}
	if want := float32(math.Pow(2, 1+2+1+3+1)); got[0] != want || len(d.calls) != 1 {
		t.Errorf("got %v after %d calls, want %v", got[0], len(d.calls), want)
	}
}

// notice is an event of a device without a clock: all before the one that is waited for come with it.
type notice struct {
	kernels.Event
	at    *time.Time
	clock bool
	own   time.Time
}

func (n notice) Sync() error {
	if n.at.IsZero() {
		*n.at = time.Now()
	}
	return nil
}

func (n notice) Time() time.Time {
	if n.clock {
		return n.own
	}
	return *n.at
}

func TestClocks(t *testing.T) {
	now := time.Now()
	for name, c := range map[string]struct {
		events []kernels.Event
		want   bool
	}{
		"of the device":    {[]kernels.Event{notice{at: &time.Time{}, clock: true, own: now}, notice{at: &time.Time{}, clock: true, own: now.Add(1)}}, true},
		"of the host":      {func() []kernels.Event { n := notice{at: &time.Time{}}; return []kernels.Event{n, n} }(), false},
		"of a queue in Do": {[]kernels.Event{kernels.Passed{At: now}, kernels.Passed{At: now.Add(1)}}, false},
	} {
		if got, err := clocked(c.events); got != c.want || err != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	broken := errors.New("broken")
	if _, err := clocked([]kernels.Event{kernels.Passed{Err: broken}}); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkCopies measures how much of the copies of messages between host and device runs beside
// passes of the same stage, in a pipeline of two stages on one device. A device whose memory is the
// host's makes none.
func BenchmarkCopies(b *testing.B) {
	device, m := openBusy(b)
	const micros, ahead = 8, 3 // the first stage is ahead as in a plan that hides a link
	run := newRun(m.config())
	run.Train.Micros, run.Train.MicroBatch, run.Train.Storage = micros, m.Batch, plan.Storage(model.StorageBF16)
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
	steps := 1 + b.N // the first one warms up
	ran, err := traced(b.Context(), steps, configs)
	if err != nil {
		b.Fatal(err)
	}
	all, beside := hidden(ran, 2, plan.Step(steps))
	if all == 0 {
		b.Skip("there were no copies: the device's memory is the host's")
	}
	b.ReportMetric(1e3*all/float64(b.N), "copy-ms/op")
	b.ReportMetric(100*beside/all, "%hidden")
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

// hidden adds up the seconds of the copies in steps from first to last, and those in which the
// worker that copies computed. Its passes come one after the other.
func hidden(t trace.Trace, first, last plan.Step) (all, beside float64) {
	for _, c := range t.Copies {
		if c.Step < first || c.Step > last {
			continue
		}
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
	return all, beside
}

func TestHiddenCopies(t *testing.T) {
	const ms = 1_000_000
	span := func(worker int, op schedule.Op, start, end int64) trace.Timed {
		return trace.Timed{Step: 2, Worker: worker, Action: schedule.Action{Op: op}, Start: start * ms, End: end * ms}
	}
	copied := func(worker int, start, end int64) trace.TimedCopy {
		return trace.TimedCopy{Step: 2, Worker: worker, Start: start * ms, End: end * ms}
	}
	tr := trace.Trace{
		Spans: []trace.Timed{
			span(0, schedule.Forward, 0, 10), span(0, schedule.ReceiveGradient, 10, 20), span(0, schedule.Backward, 20, 30), span(1, schedule.Forward, 10, 20),
		},
		Copies: []trace.TimedCopy{
			copied(0, 2, 6),    // within a pass
			copied(0, 8, 22),   // 2 at the end of a pass, 2 at the beginning of one
			copied(1, 0, 8),    // beside another worker's
			{Step: 1, End: ms}, // of another step
		},
	}
	if all, beside := hidden(tr, 2, 2); math.Abs(all-0.026) > 1e-9 || math.Abs(beside-0.008) > 1e-9 {
		t.Errorf("%v s of copies, %v beside passes; want 0.026 and 0.008", all, beside)
	}
}
