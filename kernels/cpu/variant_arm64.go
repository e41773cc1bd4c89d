package cpu

// processorVariants are the variants beside generic that this processor can run, the best
// one first. Every arm64 processor that Go runs on has NEON with multiply-adds.
func processorVariants() []*variant { return []*variant{neon()} }

// neon runs everything four floats at a time.
func neon() *variant {
	micro := microKernel{
		mr: 8, nr: 12, depth: depthBlock, block: 168 * depthBlock, multiply: multiply8x12,
		copyB: copyTo(12, groupPanels, copyRows1x12, copyRows4x12), transposeB: transposeInFours(12),
	}
	return &variant{
		name: "neon", product: micro, attention: micro,
		copyA: copyTo(8, groupPanels, copyRows1x8, copyRows4x8), transposeA: transposeInFours(8),
		peak: peakNEON, peakLanes: 8,
		max: maxNEON, add: addNEON, scale: scaleNEON,
		powers: powersNEON, softmax: softmaxNEON, softmaxGrad: softmaxGradNEON, weighted: weightedNEON, axpy: axpyNEON, timesRows: scaledRowsBy(timesNEON), axpyRows: scaledRowsBy(axpyNEON), dotRows: dotRowsBy(dotNEON),
		swiglu: swigluNEON, swigluGrad: swigluGradNEON, rotate: rotateNEON,
		narrow: byEights(narrowNEON, narrowGeneric), round: roundBy(roundNEON), widen: byEights(widenNEON, widenGeneric), widenInt8: widenInt8Generic,
		philox: philoxBy(philoxNEON), drop: dropNEON,
		gelu: geluNEON, geluGrad: geluGradNEON, adamW: adamWNEON,
		sum: sumNEON, sumSquares: sumSquaresNEON, deviation: deviationNEON,
		norm: normNEON, normSums: normSumsNEON, normGrad: normGradNEON, normWeightGrad: normWeightGradNEON,
	}
}

// transposeInFours makes a variant's transposeA or transposeB from transpose4, for a unit
// that is a multiple of 4.
func transposeInFours(unit int) packTranspose {
	return func(dst, src []float32, stride, k int) {
		_, _ = dst[k*unit-1], src[(unit-1)*stride+k-1]
		for j := 0; j < unit; j += 4 {
			transpose4(&dst[j], &src[j*stride], unit, stride, k)
		}
	}
}
