package cpu

import "github.com/klauspost/cpuid/v2"

// processorVariants are the variants beside generic that this processor can run, the best
// one first.
func processorVariants() (list []*variant) {
	if cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3, cpuid.BMI2, cpuid.AVX512F, cpuid.AVX512VL) {
		if cpuid.CPU.Supports(cpuid.AVX512BF16, cpuid.AVX512BW) {
			list = append(list, avx512bf16())
		}
		list = append(list, avx512())
	}
	if cpuid.CPU.Supports(cpuid.AVX2, cpuid.FMA3) {
		list = append(list, avx2())
	}
	return list
}

// avx2 runs everything eight floats at a time.
func avx2() *variant {
	return &variant{
		name: "avx2",
		// Of all tiles whose sums fit 16 registers, 4x24 has the fewest loads for a multiply-add,
		// 7/12; that of 6x16, 8/12, has no columns too many for heads of 64 channels.
		product: microKernel{
			mr: 4, nr: 24, depth: depthBlock, asks: 64, block: 192 * depthBlock, multiply: multiply4x24, multiplyPack: multiplyPack4x24,
			direct:       directKernels{row: direct1x24, few: direct4x24},
			directHalves: directKernels{row: directHalves1x24, few: directHalves4x24},
			directInt8:   directKernels{row: directInt81x32AVX2, few: directInt84x32AVX2},
			copyB:        copyTo(24, groupPanels, copyRows1x24, copyRows4x24), transposeB: transposeTo(24, nil),
		},
		attention: microKernel{
			mr: 6, nr: 16, depth: depthBlock, asks: 64, multiply: multiply6x16,
			copyB: copyTo(16, groupPanels, copyRows1x16, copyRows4x16), transposeB: transposeTo(16, nil),
		},
		copyA: copyTo(4, 2*groupPanels, copyRows1x4, copyRows8x4), transposeA: transposeTo(4, transpose4),
		peak: peakAVX2, peakLanes: 8,
		max: maxAVX2, add: addAVX2, scale: scaleAVX2,
		powers: exp2AVX2, softmax: softmaxAVX2, softmaxGrad: softmaxGradAVX2, weighted: weightedAVX2, axpy: axpyAVX2, timesRows: scaledRowsTo(timesRowsAVX2), axpyRows: scaledRowsTo(axpyRowsAVX2), dotRows: dotRowsTo(dotRowsAVX2),
		swiglu: swigluAVX2, swigluGrad: swigluGradAVX2, rotate: rotateAVX2,
		narrow: byEights(narrowAVX2, narrowGeneric), round: roundBy(roundAVX2), widen: byEights(widenAVX2, widenGeneric), widenInt8: widenInt8AVX2,
		philox: philoxBy(philoxAVX2), drop: dropAVX2,
		gelu: geluAVX2, geluGrad: geluGradAVX2, adamW: adamWAVX2,
		sum: sumAVX2, sumSquares: sumSquaresAVX2, deviation: deviationAVX2,
		norm: normAVX2, normSums: normSumsAVX2, normGrad: normGradAVX2, normWeightGrad: normWeightGradAVX2,
	}
}

// avx512 has its own micro-kernel and functions with long chains of operations; the rest is bound
// by memory and is that of avx2. Its conversions are for numbers that are in a cache.
func avx512() *variant {
	v := avx2()
	v.name = "avx512"
	v.peak, v.peakLanes = peakAVX512, 16
	v.product = microKernel{
		// Its panels of B, 96 KiB, and 288 KiB of A come from the second cache, of 1 MiB or more
		// where there is AVX-512: 24 multiply-adds take longer than two vectors from there.
		mr: 12, nr: 32, depth: 2 * depthBlock, asks: 128, block: 320 * depthBlock, multiply: multiply12x32, multiplyPack: multiplyPack12x32,
		fewRows: 4, few: multiply4x32,
		direct:       directKernels{row: direct1x32, few: direct4x32, rows: direct8x32},
		directHalves: directKernels{row: directHalves1x32, few: directHalves4x32, rows: directHalves8x32},
		directInt8:   directKernels{row: directInt81x32AVX512, few: directInt84x32AVX512, rows: directInt88x32AVX512},
		copyB:        copyTo(32, groupPanels, copyRows1x32, copyRows4x32), transposeB: transposeTo(32, nil),
	}
	v.copyA, v.transposeA = copyTo(12, groupPanels, copyRows1x12, copyRows4x12), transposeTo(12, transpose4)
	v.attention = v.product
	v.attention.multiplyPack, v.attention.few = nil, nil
	v.attention.direct, v.attention.directHalves, v.attention.directInt8 = directKernels{}, directKernels{}, directKernels{}
	v.powers, v.softmax, v.softmaxGrad = exp2AVX512, softmaxAVX512, softmaxGradAVX512
	v.gelu, v.geluGrad, v.swiglu, v.swigluGrad = geluAVX512, geluGradAVX512, swigluAVX512, swigluGradAVX512
	v.narrow, v.widen = narrowAVX512, widenAVX512
	return v
}

// avx512bf16 is avx512 that multiplies BF16 numbers in pairs, at twice the speed of floats.
func avx512bf16() *variant {
	v := avx512()
	v.name = "avx512bf16"
	v.peakPairs, v.peakPairLanes = peakPairsAVX512, 2*v.peakLanes
	v.addPair = addInTurn
	v.pairs = v.product
	v.pairs.multiply, v.pairs.few, v.pairs.multiplyPack = multiplyPairs12x32, multiplyPairs4x32, multiplyPackPairs12x32
	v.pairs.direct, v.pairs.directHalves = directKernels{row: directPairs1x32, few: directPairs4x32, rows: directPairs8x32}, directKernels{}
	v.pairs.directInt8 = directKernels{}
	v.pairs.copyB, v.pairs.pairB = nil, pairsTo(32, pairRows1x32, pairRows4x32)
	v.pairA = pairsTo(12, pairRows1x12, pairRows4x12)
	v.attentionPairs = v.pairs
	v.attentionPairs.few, v.attentionPairs.multiplyPack, v.attentionPairs.direct = nil, nil, directKernels{}
	v.softmaxHalves, v.softmaxGradHalves = softmaxHalvesAVX512, softmaxGradHalvesAVX512
	return v
}

// transposeTo makes a variant's transposeA or transposeB from transpose8 and, where unit
// is no multiple of 8, `rest` for what is left. That comes first, but for the last row,
// because it spoils the floats behind those it writes.
func transposeTo(unit int, rest func(dst, src *float32, dstRow, srcRow, k int)) packTranspose {
	eights := unit &^ 7
	return func(dst, src []float32, stride, k int) {
		_, _ = dst[k*unit-1], src[(unit-1)*stride+k-1]
		if eights < unit {
			if k > 1 {
				rest(&dst[eights], &src[eights*stride], unit, stride, k-1)
			}
			for j := eights; j < unit; j++ {
				dst[(k-1)*unit+j] = src[j*stride+k-1]
			}
		}
		for j := 0; j < eights; j += 8 {
			transpose8(&dst[j], &src[j*stride], unit, stride, k)
		}
	}
}

// scaledRowsTo makes a variant's timesRows or axpyRows from the assembly, which checks no bounds,
// and dotRowsTo its dotRows.
func scaledRowsTo(rows func(dst, src []float32, dstRow, srcRow, cols int, s []float32)) func(dst, src []float32, dstRow, srcRow, cols int, s []float32) {
	return func(dst, src []float32, dstRow, srcRow, cols int, s []float32) {
		if last := len(s) - 1; last >= 0 {
			_, _ = dst[last*dstRow+cols-1], src[last*srcRow+cols-1]
			rows(dst, src, dstRow, srcRow, cols, s)
		}
	}
}

func dotRowsTo(rows func(out, x, y []float32, xRow, yRow, cols int)) func(out, x, y []float32, xRow, yRow, cols int) {
	return func(out, x, y []float32, xRow, yRow, cols int) {
		if last := len(out) - 1; last >= 0 {
			_, _ = x[last*xRow+cols-1], y[last*yRow+cols-1]
			rows(out, x, y, xRow, yRow, cols)
		}
	}
}
