package bench

import (
	"errors"
	"math"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
)

// TestReplay makes a recorded call again: twice to warm up, once to get ahead, and as often as asked.
func TestReplay(t *testing.T) {
	processor, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer processor.Close()
	d := &watchedDevice{Device: processor}
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
	if busy, host, err := d.replay(3); err != nil || busy != 0 || host <= 0 {
		t.Fatalf("%v and %v s of a device without a clock: %v", busy, host, err)
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
	if n, all, beside := hidden(tr, 2, 2); n != 3 || math.Abs(all-0.026) > 1e-9 || math.Abs(beside-0.008) > 1e-9 {
		t.Errorf("%d copies of %v s, %v beside passes; want 3 of 0.026 and 0.008", n, all, beside)
	}
}
