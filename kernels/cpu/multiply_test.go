package cpu

import (
	"math"
	"slices"
	"testing"

	"pnode/kernels"
)

// TestMicroKernelsAddInOrder holds the assembly to one sequence of roundings: the start,
// a fused multiply-add for each K in ascending order, and the old value last. So the bits
// of a product are the same on all variants in assembly.
func TestMicroKernelsAddInOrder(t *testing.T) {
	for _, v := range candidates() {
		if v.name == "generic" {
			continue // the compiler fuses on some architectures
		}
		list := []microKernel{v.product, v.attention}
		if packing := v.product; packing.multiplyPack != nil {
			packing.multiply = packing.multiplyPack
			list = append(list, packing)
		}
		if v.product.few != nil {
			list = append(list, microKernel{mr: v.product.fewRows, nr: v.product.nr, multiply: v.product.few})
		}
		for _, m := range list {
			for _, k := range []int{1, 2, 7, 64} {
				packed := tile{K: k, ARow: 1, ACol: m.mr}
				strided := tile{K: k, ARow: k + 3, ACol: 1, Accumulate: 1}
				for _, args := range []tile{packed, strided} {
					checkOrder(t, m, args)
				}
			}
		}
	}
}

// TestFewRowsAddInOrder: products of 1 to mostDirect rows have the bits that their rows have among more, for floats and BF16, B in either
// direction, and all sums that begin and end anywhere.
func TestFewRowsAddInOrder(t *testing.T) {
	for _, v := range candidates() {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			dev := newDevice(t, Options{Threads: 2})
			for _, p := range []placement{
				{m: mostDirect + 1, n: 300, k: 77},
				{m: mostDirect + 1, n: 75, k: 50},
				{m: mostDirect + 1, n: 128, k: 2*depthBlock + 300},
				{m: mostDirect + 1, n: 33, k: 4*depthBlock + 6},
				{m: mostDirect + 1, n: 31, k: 1},
				{m: mostDirect + 1, n: 500, k: 8},
			} {
				for _, flags := range []kernels.Flags{0, kernels.TransB, kernels.TransB | kernels.Accumulate} {
					p.checkFewRows(t, dev, kernels.F32, flags)
					p.checkFewRows(t, dev, kernels.BF16, flags)
				}
			}
		})
	}
}

func (p placement) checkFewRows(t *testing.T, dev *Device, dtype kernels.DType, flags kernels.Flags) {
	t.Helper()
	a, b, bias := upload(t, dev, ramp(p.m*p.k, 7)), upload(t, dev, ramp(p.n*p.k, 11)), upload(t, dev, ramp(p.n, 5))
	if dtype.Half() {
		_, a = rounded(t, dev, dtype, floats(a))
		_, b = rounded(t, dev, dtype, floats(b))
	}
	product := func(first, m int) []float32 {
		return download(t, dev, m*p.n, func(out kernels.View) kernels.Call {
			for i := range floats(out) {
				floats(out)[i] = float32(i % p.n) // what Accumulate adds to
			}
			return kernels.MatMul(out, a.Slice(first*p.k, m*p.k), b, bias, m, p.n, p.k, flags)
		})
	}
	whole := product(0, p.m)
	for _, m := range []int{1, 2, 4, 5, 8, 11, 13, mostDirect} {
		first := p.m - m
		if got := product(first, m); !slices.Equal(got, whole[first*p.n:]) {
			t.Errorf("%+v %v flags %b: the last %d rows have other sums alone", p, dtype, flags, m)
		}
	}
}

func checkOrder(t *testing.T, m microKernel, args tile) {
	t.Helper()
	a, b := ramp(m.mr*(args.K+3), 7), ramp(m.nr*args.K, 11)
	init, c := ramp(m.nr, 5), ramp(m.mr*m.nr, 13)
	want := make([]float32, len(c))
	for i := range want {
		sum := init[i%m.nr]
		for p := range args.K {
			// The product is exact in float64; that the sum is rounded there first changes
			// one float32 in 2^29 or so.
			sum = float32(float64(a[i/m.nr*args.ARow+p*args.ACol])*float64(b[p*m.nr+i%m.nr]) + float64(sum))
		}
		if want[i] = sum; args.Accumulate != 0 {
			want[i] += c[i]
		}
	}
	args.A, args.B, args.Init, args.C, args.CRow, args.Count = &a[0], &b[0], &init[0], &c[0], m.nr, 1
	args.Packed = &make([]float32, m.mr*args.K)[0]
	m.multiply(&args)
	for i := range want {
		if math.Float32bits(c[i]) != math.Float32bits(want[i]) {
			t.Errorf("%dx%d: K %d, rows %d apart: element %d is %v, want %v", m.mr, m.nr, args.K, args.ARow, i, c[i], want[i])
			return
		}
	}
}
