package cpu

import (
	"testing"
	"unsafe"

	"github.com/klauspost/cpuid/v2"
)

// imitations are everything around the 12x32 micro-kernel, with that kernel in Go, so that
// processors without AVX-512 test its packing and tiling too.
func imitations(t *testing.T) []*variant {
	if testing.Short() {
		t.Log("no wide micro-kernel in Go, which takes long: the same runs around one in assembly")
		return nil
	}
	if !cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3) {
		t.Log("the loops beside the wide micro-kernel need AVX2")
		return nil
	}
	wide, v := avx512(), avx2()
	v.name = "avx512 in Go"
	v.product, v.copyA, v.transposeA = wide.product, wide.copyA, wide.transposeA
	v.product.multiply = func(t *tile) { multiplyAny(t, v.product.mr, v.product.nr) }
	v.product.multiplyPack = nil
	v.attention = v.product
	if err := v.verify(); err != nil {
		t.Fatal(err)
	}
	return []*variant{v}
}

// multiplyAny is the micro-kernel for any tile.
func multiplyAny(t *tile, mr, nr int) {
	a, b := unsafe.Slice(t.A, (t.Count-1)*t.AStep+(mr-1)*t.ARow+(t.K-1)*t.ACol+1), unsafe.Slice(t.B, t.K*nr)
	init, c := unsafe.Slice(t.Init, nr), unsafe.Slice(t.C, (t.Count*mr-1)*t.CRow+nr)
	for i := range t.Count * mr {
		for j := range nr {
			sum := init[j]
			for p := range t.K {
				sum += a[i/mr*t.AStep+i%mr*t.ARow+p*t.ACol] * b[p*nr+j]
			}
			if t.Accumulate != 0 {
				sum += c[i*t.CRow+j]
			}
			c[i*t.CRow+j] = sum
		}
	}
}
