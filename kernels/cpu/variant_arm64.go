package cpu

// processorVariants are the variants beside generic that this processor can run, the best
// one first. Every arm64 processor that Go runs on has NEON with multiply-adds.
func processorVariants() (list []*variant) {
	if multipliesBF16() {
		list = append(list, neonbf16())
	}
	return append(list, neon())
}

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

// neonbf16 is neon that multiplies BF16 numbers in pairs, sixteen products in one instruction.
func neonbf16() *variant {
	v := neon()
	v.name = "neonbf16"
	v.peakPairs, v.peakPairLanes = peakPairsNEON, 4*v.peakLanes
	v.addPair = addTogether
	v.pairs = v.product
	v.pairs.multiply = multiplyPairs8x12
	v.pairs.copyB, v.pairs.pairB = nil, pairsTo(12, pairRows1x12, pairRows4x12)
	v.pairA = pairsTo(8, pairRows1x8, pairRows4x8)
	v.attentionPairs = v.pairs
	v.pairs.multiply, v.pairs.arrange = multiplySquares8x12, arrangeSquares
	v.softmaxHalves = func(out []uint16, x []float32, scale, least float32) (top, sum float32) {
		v.scale(x, scale)
		top, sum = v.softmax(x, least)
		v.narrow(out, x)
		return top, sum
	}
	v.softmaxGradHalves = func(p, dp []uint16, x, dx []float32, by *[5]float32) {
		v.scale(x, by[0])
		v.softmaxGrad(x, dx, by[1], by[3])
		v.scale(x, by[2])
		v.scale(dx, by[2]*by[4])
		v.narrow(p, x)
		v.narrow(dp, dx)
	}
	return v
}

// arrangeSquares is microKernel.arrange for multiplySquares8x12, of panels of 8 or 12.
func arrangeSquares(panels []float32, unit, k int) {
	order := squares8
	if unit == 12 {
		order = squares12
	}
	for ; len(panels) > 0; panels = panels[unit*k:] {
		order(&panels[:unit*k][0], k/2)
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
