package devices

import (
	"fmt"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
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

// TestBesides: what small products take longer is their calls' time, and the median of three
// measured ones is not moved by one that was disturbed.
func TestBesides(t *testing.T) {
	const flops = 1e12
	taking := func(call float64, n int) int64 {
		cubed := 2 * float64(n) * float64(n) * float64(n)
		return int64(cubed / (call*1e-9 + cubed/flops))
	}
	for _, c := range []struct {
		calls [len(smallRows)]float64
		want  int64
	}{
		{[...]float64{2000, 2000, 2000}, 2000},
		{[...]float64{2000, 90000, 2000}, 2000},
		{[...]float64{0, 0, 0}, 0},
		{[...]float64{-10, 5, -10}, 0}, // small ones faster: they are nearer in the caches
	} {
		var rates [len(smallRows)]int64
		for i, n := range smallRows {
			rates[i] = taking(c.calls[i], n)
		}
		if got := besides(rates, flops); got < c.want-1 || got > c.want+1 {
			t.Errorf("calls of %v ns: %d ns", c.calls, got)
		}
	}
}
