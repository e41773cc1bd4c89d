package main

import "math"

// lineUnroll is how many vectors the loops without a chain of operations handle in a round.
const lineUnroll = 4

func elementwise(s *source) {
	f := s.begin("addNEON", "func(out, x, y []float32)", "computes out = x + y.")
	out, x, y := f.slice("out"), f.slice("x"), f.slice("y")
	f.loop("out", lineUnroll, func(l lanes) {
		v := l.load(x)
		f.add(v, v, l.load(y))
		l.store(v, out)
	}, out, x, y)
	f.end()

	f = s.begin("scaleNEON", "func(x []float32, s float32)", "computes x *= s.")
	x = f.slice("x")
	factor := f.scalar("s")
	f.loop("x", lineUnroll, func(l lanes) {
		v := l.load(x)
		f.mul(v, v, factor)
		l.store(v, x)
	}, x)
	f.end()

	f = s.begin("axpyNEON", "func(y, x []float32, s float32)", "computes y += s*x.")
	y, x, factor = f.slice("y"), f.slice("x"), f.scalar("s")
	f.loop("y", lineUnroll, func(l lanes) {
		v := l.load(y)
		f.fma(v, l.load(x), factor)
		l.store(v, y)
	}, y, x)
	f.end()

	f = s.begin("timesNEON", "func(y, x []float32, s float32)", "computes y = s*x.")
	y, x, factor = f.slice("y"), f.slice("x"), f.scalar("s")
	f.loop("y", lineUnroll, func(l lanes) {
		v := l.load(x)
		f.mul(v, v, factor)
		l.store(v, y)
	}, y, x)
	f.end()
}

func maximum(s *source) {
	f := s.begin("maxNEON", "func(x []float32) float32", "is the largest element, minus infinity without any.")
	x, top := f.slice("x"), f.constants(float32(math.Inf(-1)))[0]
	f.loop("x", 1, func(l lanes) {
		v := l.load(x)
		l.fill(v)
		f.max(top, top, v)
	}, x)
	f.highest(top, top)
	f.give(top, "ret")
	f.end()
}

func sums(s *source) {
	f := s.begin("sumNEON", "func(x []float32) float32", "is the sum of x.")
	x, sum := f.slice("x"), f.zeros()
	f.run(pass{name: "vector", n: f.length("x"), pointers: []reg{x}, unroll: len(sum)}, func(l lanes, k int) {
		f.add(sum[k], sum[k], l.load(x))
	})
	f.give(sum.total(f), "ret")
	f.end()

	f = s.begin("dotNEON", "func(x, y []float32) float32", "is the sum of x*y.")
	x, y, sum := f.slice("x"), f.slice("y"), f.zeros()
	f.run(pass{name: "vector", n: f.length("x"), pointers: []reg{x, y}, unroll: len(sum)}, func(l lanes, k int) {
		v := l.load(x)
		f.fma(sum[k], v, l.load(y))
	})
	f.give(sum.total(f), "ret")
	f.end()

	f = s.begin("deviationNEON", "func(x []float32, mean float32) float32", "is the sum of (x-mean)^2.")
	x, sum = f.slice("x"), f.zeros()
	mean := f.scalar("mean")
	f.run(pass{name: "vector", n: f.length("x"), pointers: []reg{x}, unroll: len(sum)}, func(l lanes, k int) {
		v := l.load(x)
		f.sub(v, v, mean)
		l.drop(v)
		f.fma(sum[k], v, v)
	})
	f.give(sum.total(f), "ret")
	f.end()
}

// sumSquares adds up in float64, two lanes for the low and two for the high half of a vector.
func sumSquares(s *source) {
	f := s.begin("sumSquaresNEON", "func(x []float32) float64", "is the sum of x^2 in float64.")
	x, sum := f.slice("x"), f.zeros()
	f.run(pass{name: "vector", n: f.length("x"), pointers: []reg{x}, unroll: len(sum) / 2}, func(l lanes, k int) {
		v, wide := l.load(x), f.vec()
		f.wideLow(wide, v)
		f.wideFMA(sum[2*k], wide, wide)
		f.wideHigh(wide, v)
		f.wideFMA(sum[2*k+1], wide, wide)
	})
	f.wideAdd(sum[0], sum[0], sum[1])
	f.wideAdd(sum[2], sum[2], sum[3])
	f.wideAdd(sum[0], sum[0], sum[2])
	f.wideTotal(sum[0], sum[0])
	f.op("FMOVD", "F%d, ret+%d(FP)", sum[0], f.offset("ret"))
	f.end()
}
