package cpu

import (
	"sync"

	"github.com/klauspost/cpuid/v2"
)

// usableVariants lists the variants of this processor, the best one last. One whose
// micro-kernel computes wrong is left out.
var usableVariants = sync.OnceValue(func() []*variant {
	list := []*variant{generic()}
	if cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3) {
		if v := avx2(); v.verify() {
			list = append(list, v)
		}
	}
	if cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.AVX512F) {
		if v := avx512(); v.verify() {
			list = append(list, v)
		}
	}
	return list
})

// avx2 runs everything eight floats at a time.
func avx2() *variant {
	return &variant{
		name: "avx2", mr: 6, nr: 16,
		multiply: multiply6x16, transpose: transposeTo(16),
		copyA: copyTo(6, copyRows6), copyB: copyTo(16, copyRows16),
		max: maxAVX2, dot: dotAVX2, add: addAVX2, scale: scaleAVX2,
		exp: expAVX2, softmaxGrad: softmaxGradAVX2,
		swiglu: swigluGeneric, swigluGrad: swigluGradGeneric, rotate: rotateGeneric,
		narrow: narrowGeneric, widen: widenGeneric,
		gelu: geluAVX2, geluGrad: geluGradAVX2, adamW: adamWAVX2,
		sum: sumAVX2, sumSquares: sumSquaresAVX2, deviation: deviationAVX2,
		norm: normAVX2, normSums: normSumsAVX2, normGrad: normGradAVX2, normWeightGrad: normWeightGradAVX2,
	}
}

// avx512 has its own micro-kernel; the rest is bound by memory and is that of avx2.
func avx512() *variant {
	v := avx2()
	v.name, v.mr, v.nr = "avx512", 12, 32
	v.multiply, v.transpose = multiply12x32, transposeTo(32)
	v.copyA, v.copyB = copyTo(12, copyRows12), copyTo(32, copyRows32)
	return v
}

// transposeTo makes a variant's transpose for panels of nr columns, a multiple of 8.
func transposeTo(nr int) func(dst, src []float32, stride, k int) {
	return func(dst, src []float32, stride, k int) {
		whole := k &^ 7
		if whole > 0 {
			_, _ = dst[whole*nr-1], src[(nr-1)*stride+whole-1]
			for j := 0; j < nr; j += 8 {
				transpose8(&dst[j], &src[j*stride], nr, stride, whole)
			}
		}
		if whole < k {
			packColumns(dst[whole*nr:], src[whole:], stride, nr, nr, k-whole)
		}
	}
}

// copyTo makes a variant's copyA or copyB from the assembly for its unit.
func copyTo(unit int, rows func(dst, src *float32, stride, k int)) func(dst, src []float32, stride, k int) {
	return func(dst, src []float32, stride, k int) {
		_, _ = dst[k*unit-1], src[(k-1)*stride+unit-1]
		rows(&dst[0], &src[0], stride, k)
	}
}
