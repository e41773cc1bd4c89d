package cpu

import (
	"math"
	"unsafe"
)

// generic is plain Go: the reference of the other variants and the fallback everywhere.
func generic() *variant {
	micro := microKernel{
		mr: 4, nr: 4, depth: depthBlock, block: 152 * depthBlock, multiply: multiplyGeneric, copyB: copyGeneric, transposeB: transposeGeneric,
	}
	return &variant{
		name: "generic", product: micro, attention: micro, copyA: copyGeneric, transposeA: transposeGeneric,
		peak: peakGeneric, peakLanes: 1,
		max: maxGeneric, add: addGeneric, scale: scaleGeneric,
		powers: powersGeneric, softmax: softmaxGeneric, softmaxGrad: softmaxGradGeneric, softmaxHalves: softmaxHalvesGeneric, softmaxGradHalves: softmaxGradHalvesGeneric, weighted: weightedGeneric, axpy: axpyGeneric, timesRows: scaledRowsBy(timesGeneric), axpyRows: scaledRowsBy(axpyGeneric), dotRows: dotRowsBy(dotGeneric),
		swiglu: swigluGeneric, swigluGrad: swigluGradGeneric, rotate: rotateGeneric,
		narrow: narrowGeneric, round: roundGeneric, widen: widenGeneric, widenInt8: widenInt8Generic,
		philox: philoxGeneric, drop: dropGeneric,
		gelu: geluGeneric, geluGrad: geluGradGeneric, adamW: adamWGeneric,
		sum: sumGeneric, sumSquares: sumSquaresGeneric, deviation: deviationGeneric,
		norm: normGeneric, normSums: normSumsGeneric, normGrad: normGradGeneric, normWeightGrad: normWeightGradGeneric,
	}
}

// multiplyGeneric is the 4x4 micro-kernel.
func multiplyGeneric(t *tile) {
	multiply4x4(t)
	for range t.Count - 1 {
		t.A = (*float32)(unsafe.Add(unsafe.Pointer(t.A), 4*t.AStep))
		t.C = (*float32)(unsafe.Add(unsafe.Pointer(t.C), 4*4*t.CRow))
		multiply4x4(t)
	}
}

func multiply4x4(t *tile) {
	a := unsafe.Slice(t.A, 3*t.ARow+(t.K-1)*t.ACol+1)
	b := unsafe.Slice(t.B, 4*t.K)
	init := (*[4]float32)(unsafe.Pointer(t.Init))
	r0, r1, r2, r3 := *init, *init, *init, *init
	for p := range t.K {
		bp := (*[4]float32)(b[4*p:])
		b0, b1, b2, b3 := bp[0], bp[1], bp[2], bp[3]
		ap := a[p*t.ACol:]
		x := ap[0]
		r0[0], r0[1], r0[2], r0[3] = r0[0]+x*b0, r0[1]+x*b1, r0[2]+x*b2, r0[3]+x*b3
		x = ap[t.ARow]
		r1[0], r1[1], r1[2], r1[3] = r1[0]+x*b0, r1[1]+x*b1, r1[2]+x*b2, r1[3]+x*b3
		x = ap[2*t.ARow]
		r2[0], r2[1], r2[2], r2[3] = r2[0]+x*b0, r2[1]+x*b1, r2[2]+x*b2, r2[3]+x*b3
		x = ap[3*t.ARow]
		r3[0], r3[1], r3[2], r3[3] = r3[0]+x*b0, r3[1]+x*b1, r3[2]+x*b2, r3[3]+x*b3
	}
	c := unsafe.Slice(t.C, 3*t.CRow+4)
	for i, r := range [4][4]float32{r0, r1, r2, r3} {
		row := c[i*t.CRow:][:4]
		for j, x := range r {
			if t.Accumulate != 0 {
				x += row[j]
			}
			row[j] = x
		}
	}
}

func copyGeneric(dst, src []float32, stride, k, panels int) {
	for i := range panels {
		for p := range k {
			*(*[4]float32)(dst[4*(i*k+p):]) = *(*[4]float32)(src[p*stride+4*i:])
		}
	}
}

func transposeGeneric(dst, src []float32, stride, k int) {
	for p := range k {
		d := (*[4]float32)(dst[4*p:])
		s := src[p:]
		d[0], d[1], d[2], d[3] = s[0], s[stride], s[2*stride], s[3*stride]
	}
}

func maxGeneric(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// sumLanes adds up in the order of vectors of eight: running sums.
func sumLanes(n int, at func(i int) float32) float32 {
	var lanes [8]float32
	for i := range n {
		lanes[i%8] += at(i)
	}
	return (lanes[0] + lanes[4]) + (lanes[1] + lanes[5]) + ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]))
}

func sumGeneric(x []float32) float32 {
	return sumLanes(len(x), func(i int) float32 { return x[i] })
}

func dotGeneric(x, y []float32) float32 {
	return sumLanes(len(x), func(i int) float32 { return x[i] * y[i] })
}

func deviationGeneric(x []float32, mean float32) float32 {
	return sumLanes(len(x), func(i int) float32 { d := x[i] - mean; return d * d })
}

func sumSquaresGeneric(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	return sum
}

func addGeneric(out, x, y []float32) {
	for i := range out {
		out[i] = x[i] + y[i]
	}
}

func scaleGeneric(x []float32, s float32) {
	for i := range x {
		x[i] *= s
	}
}

func axpyGeneric(y, x []float32, s float32) {
	for i := range y {
		y[i] += s * x[i]
	}
}

func timesGeneric(y, x []float32, s float32) {
	for i := range y {
		y[i] = s * x[i]
	}
}

// scaledRowsBy makes a variant's timesRows or axpyRows from a function of one row, dotRowsBy its
// dotRows.
func scaledRowsBy(one func(y, x []float32, s float32)) func(dst, src []float32, dstRow, srcRow, cols int, s []float32) {
	return func(dst, src []float32, dstRow, srcRow, cols int, s []float32) {
		for r, factor := range s {
			one(dst[r*dstRow:][:cols], src[r*srcRow:][:cols], factor)
		}
	}
}

func dotRowsBy(dot func(x, y []float32) float32) func(out, x, y []float32, xRow, yRow, cols int) {
	return func(out, x, y []float32, xRow, yRow, cols int) {
		for r := range out {
			out[r] = dot(x[r*xRow:][:cols], y[r*yRow:][:cols])
		}
	}
}

func weightedGeneric(out, weights, rows []float32, stride int) {
	for i, w := range weights {
		axpyGeneric(out, rows[i*stride:i*stride+len(out)], w)
	}
}
