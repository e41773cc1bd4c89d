package emulate

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pnode/kernels"
	"pnode/kernels/conform"
	"pnode/kernels/cpu"
	"pnode/kernels/null"
)

// kilo computes a thousand operations and moves a thousand bytes a second.
var kilo = Profile{Model: "kilo", MatMulFLOPS: 1000, AttentionFLOPS: 500, MemoryBytesPerS: 1000, MemoryBytes: 4000}

// rig is a device over one that computes nothing, with a queue and operands.
type rig struct {
	*testing.T
	dev *Device
	q   kernels.Queue
	out kernels.View
}

func newRig(t *testing.T, o Options) rig {
	t.Helper()
	dev, err := New(null.New(), o)
	if err != nil {
		t.Fatal(err)
	}
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	buf, err := dev.Alloc(kernels.F32, 100)
	if err != nil {
		t.Fatal(err)
	}
	return rig{t, dev, q, kernels.Whole(buf)}
}

// product takes ms milliseconds of kilo: 2*M*N*K operations with N=K=1 and M=ms/2.
func (r rig) product(ms int) kernels.Call {
	m := ms / 2
	return kernels.MatMul(r.out.Slice(0, m), r.out.Slice(30, m), r.out.Slice(70, 1), kernels.View{}, m, 1, 1, 0)
}

func (r rig) sync() {
	r.Helper()
	if err := r.q.Sync(); err != nil {
		r.Fatal(err)
	}
}

func TestDurations(t *testing.T) {
	r := newRig(t, Options{Profile: kilo})
	if got := kilo.Duration(r.product(20)); got != 20*time.Millisecond {
		t.Errorf("a product of 20 operations takes %v", got)
	}
	fill := kernels.Fill(r.out.Slice(0, 25), 25, 1)
	if got := kilo.Duration(fill); got != 100*time.Millisecond {
		t.Errorf("a fill of 100 bytes takes %v", got)
	}
	s := kernels.AttentionShape{B: 1, T: 2, H: 1, K: 1, D: 2}
	attention := kernels.AttentionForward(r.out.Slice(0, 4), r.out.Slice(4, 2), r.out.Slice(10, 12), kernels.View{}, s)
	want := time.Duration(kernels.Info(attention.Op).FLOPs(attention)) * 2 * time.Millisecond
	if got := kilo.Duration(attention); got != want || want == 0 {
		t.Errorf("attention takes %v, want %v", got, want)
	}
	slow := kilo
	slow.CallTime = 7 * time.Millisecond
	if got := slow.Duration(fill); got != 107*time.Millisecond {
		t.Errorf("a fill of 100 bytes and 7 ms takes %v", got)
	}
	if got := perSecond(1<<62, 1); got != longestCall {
		t.Errorf("without end: %v", got)
	}
}

// TestQueueIsAsynchronous: calls return at once, Sync waits for the sum of their times.
// TestADeviceSlowsDownAndRecovers: the last change counts whose time has come.
func TestADeviceSlowsDownAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Profile: kilo, Changes: []Change{{time.Second, 300}, {3 * time.Second, 100}}})
		for _, c := range []struct{ idle, want time.Duration }{{0, 20 * time.Millisecond}, {time.Second, 60 * time.Millisecond}, {2 * time.Second, 20 * time.Millisecond}} {
			time.Sleep(c.idle)
			begin := time.Now()
			r.q.Do(r.product(20))
			if r.sync(); time.Since(begin) != c.want {
				t.Errorf("a product of 20 operations takes %v, want %v", time.Since(begin), c.want)
			}
		}
	})
	if _, err := New(null.New(), Options{Profile: kilo, Changes: []Change{{0, 0}}}); !errors.Is(err, ErrBadProfile) {
		t.Errorf("calls that take no time: %v", err)
	}
}

func TestQueueIsAsynchronous(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Profile: kilo})
		begin := time.Now()
		for range 5 {
			r.q.Do(r.product(20))
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("enqueueing took %v", d)
		}
		r.sync()
		if d := time.Since(begin); d != 100*time.Millisecond {
			t.Errorf("5 calls of 20 ms took %v", d)
		}
		r.sync()
		if d := time.Since(begin); d != 100*time.Millisecond {
			t.Errorf("a Sync with nothing to wait for took time: %v in all", d)
		}
		if got := r.dev.BusyTime(); got != 100*time.Millisecond {
			t.Errorf("busy for %v", got)
		}
	})
}

// TestSmallGapsAreMadeUpFor: a program that needs a moment after each call does not slow
// the device down, one that is away for longer does.
func TestSmallGapsAreMadeUpFor(t *testing.T) {
	for _, tc := range []struct {
		gap, want time.Duration
	}{
		{900 * time.Microsecond, 10*20*time.Millisecond + 900*time.Microsecond},
		{3 * time.Millisecond, 10 * 23 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options{Profile: kilo})
			begin := time.Now()
			for range 10 {
				r.q.Do(r.product(20))
				r.sync()
				time.Sleep(tc.gap)
			}
			if d := time.Since(begin); d != tc.want {
				t.Errorf("gaps of %v: 10 calls of 20 ms took %v, want %v", tc.gap, d, tc.want)
			}
		})
	}
}

// TestWaitsOutsideAreNotMadeUpFor: a call cannot start before the message came that the
// program had waited for, however large the slack.
func TestWaitsOutsideAreNotMadeUpFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{Profile: kilo, Slack: PacedSlack})
		begin := time.Now()
		for range 10 {
			r.q.Do(r.product(20))
			r.sync()
			time.Sleep(10 * time.Millisecond)
			r.dev.Waited(time.Now())
			time.Sleep(time.Millisecond)
		}
		if d, want := time.Since(begin), 10*30*time.Millisecond+time.Millisecond; d != want {
			t.Errorf("took %v, want %v: the millisecond after each message is this machine's", d, want)
		}
	})
}

// TestQueuesShareTheDevice, and devices nothing.
func TestQueuesShareTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newRig(t, Options{Profile: kilo}), newRig(t, Options{Profile: kilo})
		second, err := a.dev.NewQueue()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		a.q.Do(a.product(20))
		second.Do(a.product(30))
		b.q.Do(b.product(40))
		a.sync()
		if d := time.Since(begin); d != 20*time.Millisecond {
			t.Errorf("the first queue took %v", d)
		}
		b.sync()
		if d := time.Since(begin); d != 40*time.Millisecond {
			t.Errorf("the other device took %v", d)
		}
		if err := second.Sync(); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d != 50*time.Millisecond {
			t.Errorf("the second queue of the first device took %v", d)
		}
	})
}

// TestCopiesGoBothWaysBesideCalls where a device has memory of its own.
func TestCopiesGoBothWaysBesideCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		card := kilo
		card.CopyBytesPerS = 4000
		r := newRig(t, Options{Profile: card})
		if near := newRig(t, Options{Profile: kilo}); !r.dev.Distant() || near.dev.Distant() {
			t.Error("a device is distant where copies take time")
		}
		up, err := r.dev.NewQueue()
		if err != nil {
			t.Fatal(err)
		}
		down, err := r.dev.NewQueue()
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r.q.Do(r.product(20))
		for range 3 { // 40 bytes take 10 ms
			up.Write(r.out.Slice(0, 10), make([]byte, 40))
		}
		down.Read(make([]byte, 200), r.out.Slice(50, 50))
		for _, c := range []struct {
			q    kernels.Queue
			want time.Duration
		}{{r.q, 20 * time.Millisecond}, {up, 30 * time.Millisecond}, {down, 50 * time.Millisecond}} {
			if err := c.q.Sync(); err != nil || time.Since(begin) != c.want {
				t.Errorf("a queue is done after %v (%v), want %v", time.Since(begin), err, c.want)
			}
		}
	})
}

// TestWhatWaitsHoldsNothingUp: a copy that waits for a call lets others be done before it, the same
// way if they are done in time, and the other way beside it.
func TestWhatWaitsHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		card := kilo
		card.CopyBytesPerS = 4000 // 40 bytes take 10 ms
		r := newRig(t, Options{Profile: card})
		begin := time.Now()
		r.q.Do(r.product(50))
		called := r.q.Record()
		copies := func(up bool, ms int, after kernels.Event) kernels.Queue {
			q, err := r.dev.NewQueue()
			if err != nil {
				t.Fatal(err)
			}
			if after != nil {
				q.Wait(after)
			}
			if host, rows := make([]byte, 4*ms), r.out.Slice(0, ms); up {
				q.Write(rows, host)
			} else {
				q.Read(host, rows)
			}
			return q
		}
		waits := copies(true, 10, called)
		early := copies(true, 30, nil)
		long := copies(true, 25, nil) // not done before the first begins
		short := copies(true, 20, nil)
		back := copies(false, 90, nil)
		chained := copies(false, 10, waits.Record())
		for _, c := range []struct {
			name string
			q    kernels.Queue
			want time.Duration
		}{
			{"early", early, 30}, {"short", short, 50}, {"waits", waits, 60}, {"long", long, 85}, {"back", back, 90}, {"chained", chained, 100},
		} {
			if err := c.q.Sync(); err != nil || time.Since(begin) != c.want*time.Millisecond {
				t.Errorf("%s is done after %v (%v), want %v", c.name, time.Since(begin), err, c.want*time.Millisecond)
			}
		}
		if err := r.q.Sync(); err != nil {
			t.Error(err)
		}
	})
}

func TestMemoryIsBounded(t *testing.T) {
	r := newRig(t, Options{Name: "gpu:1", Profile: kilo}) // holds 400 bytes
	b, err := r.dev.Alloc(kernels.BF16, 1800)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.dev.Alloc(kernels.F32, 1)
	if !errors.Is(err, kernels.ErrOutOfMemory) {
		t.Fatalf("one float too many: %v", err)
	}
	for _, word := range []string{"gpu:1", "kilo", "4 bytes", "4000 of 4000"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
	b.Free()
	b.Free()
	if _, err := r.dev.Alloc(kernels.F32, 900); err != nil {
		t.Errorf("after Free: %v", err)
	}
	if got := r.dev.PeakBytes(); got != 4000 {
		t.Errorf("peak is %d bytes", got)
	}
	if _, err := r.dev.Alloc(kernels.F32, -1); !errors.Is(err, kernels.ErrBadCall) {
		t.Errorf("a negative count: %v", err)
	}
}

func TestForeignAndFreedOperandsAreRefused(t *testing.T) {
	a, b := newRig(t, Options{Profile: kilo}), newRig(t, Options{Profile: kilo})
	if err := a.dev.Supports(b.product(2)); !errors.Is(err, kernels.ErrBadCall) {
		t.Errorf("an operand of another device: %v", err)
	}
	a.q.Do(b.product(2))
	a.q.Do(a.product(2))
	if err := a.q.Sync(); !errors.Is(err, kernels.ErrBadCall) {
		t.Errorf("the error does not stick: %v", err)
	}
	b.out.Buf.Free()
	b.q.Write(b.out, make([]byte, 400))
	if err := b.q.Sync(); !errors.Is(err, kernels.ErrBadCall) {
		t.Errorf("a freed operand: %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, p := range []Profile{{}, {MatMulFLOPS: 1}, {MatMulFLOPS: 1, AttentionFLOPS: 1, MemoryBytesPerS: 1, MemoryBytes: -1}, {MatMulFLOPS: 1, AttentionFLOPS: 1, MemoryBytesPerS: 1, MemoryBytes: 1, CopyBytesPerS: -1}, {MatMulFLOPS: 1, AttentionFLOPS: 1, MemoryBytesPerS: 1, MemoryBytes: 1, CallTime: time.Second}} {
		if _, err := New(null.New(), Options{Profile: p}); !errors.Is(err, ErrBadProfile) {
			t.Errorf("%+v: %v", p, err)
		}
	}
	if _, err := New(null.New(), Options{Profile: kilo, Slack: -1}); !errors.Is(err, ErrBadProfile) {
		t.Errorf("negative slack: %v", err)
	}
}

// TestConforms: over the processor every call gives the processor's results.
func TestConforms(t *testing.T) {
	inner, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	fast := Profile{Model: "fast", MatMulFLOPS: 1 << 50, AttentionFLOPS: 1 << 50, MemoryBytesPerS: 1 << 50, MemoryBytes: 1 << 40}
	dev, err := New(inner, Options{Profile: fast})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conform.RunForms(t, dev) // calls go on as they are, whatever their shape
}

// TestProductsOfHalves take what their type takes, or what float32 does.
func TestProductsOfHalves(t *testing.T) {
	p := kilo
	p.MatMulBF16FLOPS, p.MatMulF16FLOPS = 2000, 8000
	dev := null.New()
	for _, tc := range []struct {
		profile Profile
		dtype   kernels.DType
		want    time.Duration
	}{
		{p, kernels.F32, 2 * time.Second},
		{p, kernels.BF16, time.Second},
		{p, kernels.F16, 250 * time.Millisecond},
		{kilo, kernels.F16, 2 * time.Second},
	} {
		var v [2]kernels.View
		for i := range v {
			b, err := dev.Alloc(tc.dtype, 100)
			if err != nil {
				t.Fatal(err)
			}
			v[i] = kernels.Whole(b)
		}
		if got := tc.profile.Duration(kernels.MatMul(kernels.View{}, v[0], v[1], kernels.View{}, 10, 10, 10, 0)); got != tc.want {
			t.Errorf("%v at %d and %d: %v, want %v", tc.dtype, tc.profile.MatMulBF16FLOPS, tc.profile.MatMulF16FLOPS, got, tc.want)
		}
	}
}
