package devices

import (
	"fmt"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/null"
)

// card is a device that copies go to, oldCard one that knows no f16.
type (
	card    struct{ kernels.Device }
	oldCard struct{ card }
)

func (card) Distant() bool { return true }

func (o oldCard) Supports(c kernels.Call) error {
	for _, v := range c.Args {
		if v.Present() && v.Buf.DType() == kernels.F16 {
			return fmt.Errorf("%w: f16", kernels.ErrUnsupported)
		}
	}
	return o.Device.Supports(c)
}

// TestMeasureWithoutF16: what a device does not support has no rate, and all else has.
func TestMeasureWithoutF16(t *testing.T) {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	r, err := Measure(oldCard{card{dev}})
	if err != nil {
		t.Fatal(err)
	}
	if r.CallNanos < 0 || r.CallNanos > 1e9 {
		t.Errorf("a call takes %d ns besides its operations", r.CallNanos)
	}
	if r.MatMulF16FLOPS != 0 || min(r.MatMulFLOPS, r.MatMulBF16FLOPS, r.AttentionFLOPS, r.MemoryBytesPerS, r.CopyBytesPerS) <= 0 {
		t.Errorf("%+v", r)
	}
	if r, err = Measure(card{dev}); err != nil || r.MatMulF16FLOPS <= 0 {
		t.Errorf("a device that knows f16: %+v, %v", r, err)
	}
}

// multiplier is a processor that says of which halves it has products.
type multiplier struct {
	kernels.Device
	halves []kernels.DType
}

func (m multiplier) MultipliesHalves(t kernels.DType) bool { return slices.Contains(m.halves, t) }

// TestProcessorsAreMeasuredInHalvesThatTheyMultiply: in bf16 where they have instructions for it, and in nothing where not.
func TestProcessorsAreMeasuredInHalvesThatTheyMultiply(t *testing.T) {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := dev.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, halves := range [][]kernels.DType{nil, {kernels.BF16}} {
		r, err := Measure(multiplier{dev, halves})
		if err != nil {
			t.Fatal(err)
		}
		measured := r.TimesBF16.Products.Measured() && r.TimesBF16.AttentionForward.Measured() && r.TimesBF16.AttentionBackward.Measured()
		if bf16 := halves != nil; r.MatMulBF16FLOPS > 0 != bf16 || measured != bf16 || r.TimesBF16.Streaming.Measured() {
			t.Errorf("with products of %v: bf16 at %d, %+v", halves, r.MatMulBF16FLOPS, r.TimesBF16)
		}
		if r.MatMulF16FLOPS != 0 || r.TimesF16 != (kernels.WorkTimes{}) || r.MatMulFLOPS <= 0 {
			t.Errorf("with products of %v: f16 at %d, f32 at %d", halves, r.MatMulF16FLOPS, r.MatMulFLOPS)
		}
	}
}

// TestBesides: what small products take longer is their calls' time, and the median of three
// measured ones is not moved by one that was disturbed.
func TestBesides(t *testing.T) {
	const flops = 1e12
	for _, c := range []struct {
		calls [3]int64
		want  int64
	}{
		{[...]int64{2000, 2000, 2000}, 2000},
		{[...]int64{2000, 90000, 2000}, 2000},
		{[...]int64{0, 0, 0}, 0},
		{[...]int64{-10, 5, -10}, 0}, // small ones faster: they are nearer in the caches
	} {
		var times kernels.SizeTimes
		for i, call := range c.calls {
			times[i] = call + kernels.WorkProducts.Sizes()[i]*1e9/flops
		}
		if got := besides(times, flops); got < c.want-1 || got > c.want+1 {
			t.Errorf("calls of %v ns: %d ns", c.calls, got)
		}
	}
}

// TestTimesGrow: times grow with sizes whatever was measured, and nothing that was not measured is faster than what was.
func TestTimesGrow(t *testing.T) {
	c := column{work: kernels.WorkStreaming}
	sizes := c.work.Sizes()
	for i, nanos := range []float64{900, 500, 4000, 3500} { // the first and the third disturbed
		c.cells[i] = cell{nanos: nanos, size: float64(sizes[i])}
	}
	want := kernels.SizeTimes{500, 500, 3500, 3500, 28000, 112000, 448000}
	if got := c.times(); got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWorksHaveTheirSizes: the calls of each size are about as large as it says.
func TestWorksHaveTheirSizes(t *testing.T) {
	b := bencher{dev: null.New()}
	b.q, b.err = b.dev.NewQueue()
	for w := kernels.WorkProducts; w < kernels.WorkCopy; w++ {
		for i, size := range w.Sizes() {
			calls, sum := b.calls(w, kernels.F32, i), int64(0)
			for _, c := range calls {
				of, got, count := c.Work()
				if err := c.Check(); err != nil || of != w || count < 1 {
					t.Errorf("%v: %v, %v", w, of, err)
				}
				sum += got
			}
			if mean := sum / int64(len(calls)); mean < size/2 || mean > 2*size {
				t.Errorf("%v: calls of %d, want about %d", w, mean, size)
			}
		}
	}
	if b.err != nil {
		t.Error(b.err)
	}
}
