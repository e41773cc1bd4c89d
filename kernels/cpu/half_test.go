package cpu

import (
	"slices"
	"testing"

	"pnode/kernels"
)

// TestHalfProductsAreRounded stores the operands as BF16 and expects the very sums of the
// same numbers in float32, rounded once where the result is BF16, for flat and tall
// results and beyond what is packed at one time.
func TestHalfProductsAreRounded(t *testing.T) {
	for _, v := range candidates() {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			dev := newDevice(t, Options{Threads: 2})
			for _, p := range []placement{{m: 3, n: 70, k: 50}, {m: rowBlock + 7, n: packWidth + 90, k: packLimit/packWidth + depthBlock}} {
				all := []kernels.Flags{kernels.TransA | kernels.Accumulate, kernels.TransB, 0}
				if testing.Short() && p.m > rowBlock {
					all = all[:1] // 240 million multiply-adds a product take long on an emulated processor
				}
				for _, flags := range all {
					p.checkHalves(t, dev, flags)
				}
			}
		})
	}
}

func (p placement) checkHalves(t *testing.T, dev *Device, flags kernels.Flags) {
	t.Helper()
	a, halfA := rounded(t, dev, ramp(p.m*p.k, 7))
	b, halfB := rounded(t, dev, ramp(p.n*p.k, 11))
	sums, halfSums := rounded(t, dev, ramp(p.m*p.n, 13))
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
	dev.v.narrow(want, floats(sums))
	if !slices.Equal(floats(again), floats(sums)) {
		t.Errorf("%+v flags %b: BF16 operands give other sums", p, flags)
	}
	if !slices.Equal(halves(halfSums), want) {
		t.Errorf("%+v flags %b: a BF16 result is not the rounded one", p, flags)
	}
}

// rounded gives x rounded to BF16, stored as F32 and as BF16.
func rounded(t *testing.T, dev *Device, x []float32) (wide, half kernels.View) {
	t.Helper()
	buf, err := dev.Alloc(kernels.BF16, len(x))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(buf.Free)
	half = kernels.Whole(buf)
	dev.v.narrow(halves(half), x)
	dev.v.widen(x, halves(half))
	return upload(t, dev, x), half
}
