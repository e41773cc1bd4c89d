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

// TestRowsAloneAddInOrder: a product of one row has the bits that its row has among others, for B in either direction.
func TestRowsAloneAddInOrder(t *testing.T) {
	for _, v := range candidates() {
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(VariantEnv, v.name)
			dev := newDevice(t, Options{Threads: 2})
			for _, s := range []struct{ m, n, k int }{{5, 300, 77}, {14, 128, 2*depthBlock + 300}, {4, 31, 1}, {3, 1000, 8}} {
				for _, flags := range []kernels.Flags{0, kernels.TransB, kernels.TransB | kernels.Accumulate} {
					a, b, bias := upload(t, dev, ramp(s.m*s.k, 7)), upload(t, dev, ramp(s.n*s.k, 11)), upload(t, dev, ramp(s.n, 5))
					product := func(a kernels.View, m int) []float32 {
						return download(t, dev, m*s.n, func(out kernels.View) kernels.Call {
							for i := range floats(out) {
								floats(out)[i] = float32(i % s.n) // what Accumulate adds to
							}
							return kernels.MatMul(out, a, b, bias, m, s.n, s.k, flags)
						})
					}
					whole := product(a, s.m)
					for i := range s.m {
						if got := product(a.Slice(i*s.k, s.k), 1); !slices.Equal(got, whole[i*s.n:][:s.n]) {
							t.Fatalf("%v, flags %v: row %d has other sums alone", s, flags, i)
						}
					}
				}
			}
		})
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
