package cpu

import (
	"math"
	"slices"
	"testing"

	"pnode/kernels"
)

// TestHalfProductsAreRounded stores the operands as halves and expects the very sums of the
// same numbers in float32, rounded once where the result is a half, for flat and tall
// results and beyond what is packed at one time.
func TestHalfProductsAreRounded(t *testing.T) {
	for _, v := range candidates() {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			dev := newDevice(t, Options{Threads: 2})
			for _, p := range []placement{{m: 3, n: 70, k: 50}, {m: flatRows + 7, n: packWidth + 90, k: packLimit/packWidth + 2*depthBlock}} {
				all := []kernels.Flags{kernels.TransA | kernels.Accumulate, kernels.TransB, 0}
				if testing.Short() && p.m > flatRows {
					all = all[:1] // 200 million multiply-adds a product take long on an emulated processor
				}
				p.checkHalves(t, dev, kernels.F16, all[0])
				if v.pairs.multiply != nil {
					continue // sums of BF16 are others: TestPairsGiveTheBitsOfPairsInGo looks at those
				}
				for _, flags := range all {
					p.checkHalves(t, dev, kernels.BF16, flags)
				}
			}
		})
	}
}

func (p placement) checkHalves(t *testing.T, dev *Device, half kernels.DType, flags kernels.Flags) {
	t.Helper()
	a, halfA := rounded(t, dev, half, ramp(p.m*p.k, 7))
	b, halfB := rounded(t, dev, half, ramp(p.n*p.k, 11))
	sums, halfSums := rounded(t, dev, half, ramp(p.m*p.n, 13))
	bias := upload(t, dev, ramp(p.n, 5))
	again := upload(t, dev, slices.Clone(floats(sums)))
	for _, c := range []kernels.Call{
		kernels.MatMul(sums, a, b, bias, p.m, p.n, p.k, flags),
		kernels.MatMul(again, halfA, halfB, bias, p.m, p.n, p.k, flags),
		kernels.MatMul(halfSums, halfA, halfB, bias, p.m, p.n, p.k, flags),
	} {
		if err := dev.run(c); err != nil {
			t.Fatal(err)
		}
	}
	want := make([]uint16, p.m*p.n)
	dev.v.conversion(half).narrow(want, floats(sums))
	if !slices.Equal(floats(again), floats(sums)) {
		t.Errorf("%+v flags %b: %v operands give other sums", p, flags, half)
	}
	if !slices.Equal(halves(halfSums), want) {
		t.Errorf("%+v flags %b: a %v result is not the rounded one", p, flags, half)
	}
}

// rounded gives x rounded to a half, stored as F32 and as that.
func rounded(t *testing.T, dev *Device, dtype kernels.DType, x []float32) (wide, half kernels.View) {
	t.Helper()
	buf, err := dev.Alloc(dtype, len(x))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buf.Free)
	half = kernels.Whole(buf)
	as := dev.v.conversion(dtype)
	as.narrow(halves(half), x)
	as.widen(x, halves(half))
	return upload(t, dev, x), half
}

// TestEveryF16 wants every number of F16 back from float32, and what lies between two neighbours at
// the nearer one.
func TestEveryF16(t *testing.T) {
	const infinity = 0x7c00
	for h := range uint16(infinity) {
		for _, sign := range []uint16{0, 1 << 15} {
			x := floatOf(h | sign)
			if got := nearestF16(math.Float32bits(x)); got != h|sign {
				t.Fatalf("%04x is %v, which is rounded to %04x", h|sign, x, got)
			}
			if h+1 == infinity {
				continue
			}
			middle := (x + floatOf(h+1|sign)) / 2 // exact: one digit more
			low, high := math.Nextafter32(middle, 0), math.Nextafter32(middle, 2*middle)
			for between, want := range map[float32]uint16{low: h, middle: h + h&1, high: h + 1} {
				if got := nearestF16(math.Float32bits(between)); got != want|sign {
					t.Fatalf("%v is rounded to %04x, want %04x", between, got, want|sign)
				}
			}
		}
	}
}
