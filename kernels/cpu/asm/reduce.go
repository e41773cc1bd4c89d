package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func elementwise() {
	begin("addAVX2", "func(out, x, y []float32)", "computes out = x + y.")
	out, x, y := slice("out"), slice("x"), slice("y")
	loop("out", func(l lanes) {
		v := l.load(x)
		VADDPS(l.load(y), v, v)
		l.store(v, out)
	})
	end()

	begin("scaleAVX2", "func(x []float32, s float32)", "computes x *= s.")
	x = slice("x")
	s := scalar("s")
	loop("x", func(l lanes) {
		v := l.load(x)
		VMULPS(s, v, v)
		l.store(v, x)
	})
	end()
}

func sums() {
	begin("sumAVX2", "func(x []float32) float32", "is the sum of x.")
	x := slice("x")
	sum := zeros()
	unrolled("", "x", len(sum), func(l lanes, k int) { VADDPS(l.load(x), sum[k], sum[k]) })
	Store(sum.total(), ReturnIndex(0))
	end()

	begin("deviationAVX2", "func(x []float32, mean float32) float32", "is the sum of (x-mean)^2.")
	x = slice("x")
	mean := scalar("mean")
	sum = zeros()
	unrolled("", "x", len(sum), func(l lanes, k int) {
		v := l.load(x)
		VSUBPS(mean, v, v)
		l.drop(v)
		VFMADD231PS(v, v, sum[k])
	})
	Store(sum.total(), ReturnIndex(0))
	end()
}

// sumSquares adds up in float64, four lanes for the low and four for the high halves.
func sumSquares() {
	begin("sumSquaresAVX2", "func(x []float32) float64", "is the sum of x^2 in float64.")
	x := slice("x")
	sums := zeros()
	unrolled("", "x", len(sums)/2, func(l lanes, k int) {
		v := l.load(x)
		half, doubles := XMM(), YMM()
		VEXTRACTF128(Imm(1), v, half)
		VCVTPS2PD(v.AsX(), doubles)
		VFMADD231PD(doubles, doubles, sums[2*k])
		VCVTPS2PD(half, doubles)
		VFMADD231PD(doubles, doubles, sums[2*k+1])
	})
	VADDPD(sums[0], sums[1], sums[1])
	VADDPD(sums[2], sums[3], sums[3])
	low, high := sums[1], sums[3]
	VADDPD(low, high, high)
	upper := XMM()
	VEXTRACTF128(Imm(1), high, upper)
	VADDPD(upper, high.AsX(), upper)
	VUNPCKHPD(upper, upper, low.AsX())
	VADDSD(low.AsX(), upper, upper)
	Store(upper, ReturnIndex(0))
	end()
}
