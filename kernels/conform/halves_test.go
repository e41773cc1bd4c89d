package conform

import (
	"math"
	"testing"

	"pnode/kernels"
)

// TestHalfBits wants every half to come back from the number that it stands for.
func TestHalfBits(t *testing.T) {
	for _, half := range []kernels.DType{kernels.BF16, kernels.F16} {
		for bits := range 1 << 16 {
			x := fromHalf(half, uint16(bits))
			if got := HalfBits(half, x); x == x && got != uint16(bits) {
				t.Fatalf("%v: %04x is %v, whose bits are %04x", half, bits, x, got)
			}
			if near := nearest(half, x); near != x && x == x {
				t.Fatalf("%v: %v is rounded to %v", half, x, near)
			}
		}
	}
}

// TestNearestF16 wants known numbers, from the definition of the format.
func TestNearestF16(t *testing.T) {
	inf := math.Inf(1)
	for x, want := range map[float64]float64{
		1: 1, 1 + 0x1p-11: 1, 1 + 0x3p-11: 1 + 0x1p-9, 2049: 2048, 2051: 2052, -2049: -2048,
		65504: 65504, 65519: 65504, 65520: 65504, 1e38: 65504, -1e38: -65504, inf: inf, -inf: -inf,
		0x1p-24: 0x1p-24, 0x1p-25: 0, 0x1.8p-25: 0x1p-24, 0x1.8p-24: 0x1p-23, 0x1p-14: 0x1p-14, 1e-12: 0,
	} {
		if got := nearestF16(float32(x)); float64(got) != want {
			t.Errorf("%v is rounded to %v, want %v", x, got, want)
		}
	}
	if got := nearestF16(float32(math.NaN())); got == got {
		t.Errorf("NaN is rounded to %v", got)
	}
}
