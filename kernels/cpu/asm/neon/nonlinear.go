package main

import (
	"math"

	"pnode/kernels/cpu/asm/formula"
)

// exponent holds the registers that exp2 needs: the coefficients, and the range in which its
// argument must lie.
type exponent struct {
	p         [6]vec
	low, high vec
}

// exponentNumbers are the first constants of a function that uses exp2.
var exponentNumbers = append(formula.Exp2[:], -126, 126)

// exponential loads the constants of exp2 and then more.
func (f *function) exponential(more ...float32) (e exponent, rest []vec) {
	c := f.constants(append(exponentNumbers[:len(exponentNumbers):len(exponentNumbers)], more...)...)
	e = exponent{p: [6]vec(c), low: c[6], high: c[7]}
	return e, c[8:]
}

// clamp limits x to [low, high]; NaN stays.
func (f *function) clamp(x, low, high vec) {
	f.min(x, x, high)
	f.max(x, x, low)
}

// exp2 replaces x, which must lie in [-126, 126], by 2^x: the algorithm of exp2Generic in
// package cpu, with the polynomial in Estrin's order, which has half the latency of
// Horner's.
func (f *function) exp2(x vec, e exponent) {
	n, square := f.vec(), f.vec()
	f.round(n, x)
	f.sub(x, x, n)
	f.mul(square, x, x)
	high, middle, low := f.line(e.p[0], e.p[1], x), f.line(e.p[2], e.p[3], x), f.line(e.p[4], e.p[5], x)
	f.fma(middle, high, square)
	f.fma(low, middle, square)
	f.whole(n, n)
	f.left(n, n, 23)
	f.addInt(x, low, n) // multiplies by 2^n
}

// line is a*x + b.
func (f *function) line(a, b, x vec) vec {
	v := f.vec()
	f.copy(v, b)
	f.fma(v, a, x)
	return v
}

func powers(s *source) {
	f := s.begin("powersNEON", "func(out, x []float32, scale, shift float32) float32", "computes out = 2^((x-shift)*scale), for powers of at most 126, and gives its sum.")
	out, x, scale, shift := f.slice("out"), f.slice("x"), f.scalar("scale"), f.scalar("shift")
	e, _ := f.exponential()
	sum := f.vec()
	f.zero(sum)
	f.loop("out", 1, func(l lanes) {
		v := l.load(x)
		f.sub(v, v, shift)
		f.mul(v, v, scale)
		f.max(v, v, e.low)
		f.exp2(v, e)
		l.drop(v)
		f.add(sum, sum, v)
		l.store(v, out)
	}, out, x)
	f.total(sum, sum)
	f.give(sum, "ret")
	f.end()
}

// logistic replaces x by 1/(1+2^x), for x in [-126, 126].
func (f *function) logistic(x vec, e exponent) {
	one := e.p[5] // the polynomial's constant term
	f.exp2(x, e)
	f.add(x, x, one)
	f.div(x, one, x)
}

// geluNumbers are the limits of x and the coefficients of log2(e)*-2u, for x and x^3.
var geluNumbers = []float32{
	-formula.GELULimit, formula.GELULimit,
	-formula.GELUTwoRootPi * math.Log2E, -formula.GELUTwoRootPi * formula.GELUCube * math.Log2E,
}

// gate gives sigmoid(2u) of the limited x and x^2, with the registers of geluNumbers.
func (f *function) gate(x vec, e exponent, c []vec) (sigmoid, square vec) {
	f.clamp(x, c[0], c[1])
	square = f.vec()
	f.mul(square, x, x)
	sigmoid = f.line(c[3], c[2], square)
	f.mul(sigmoid, sigmoid, x)
	f.logistic(sigmoid, e)
	return sigmoid, square
}

func gelu(s *source) {
	f := s.begin("geluNEON", "func(out, x []float32)", "computes out = GELU(x).")
	out, x := f.slice("out"), f.slice("x")
	e, c := f.exponential(geluNumbers...)
	f.loop("out", 1, func(l lanes) {
		v, limited := l.load(x), f.vec()
		f.copy(limited, v)
		sigmoid, _ := f.gate(limited, e, c)
		f.mul(v, v, sigmoid)
		l.store(v, out)
	}, out, x)
	f.end()
}

func geluGrad(s *source) {
	f := s.begin("geluGradNEON", "func(dx, dout, x []float32)", "computes dx = dout * GELU'(x).")
	dx, dout, x := f.slice("dx"), f.slice("dout"), f.slice("x")
	e, c := f.exponential(append(geluNumbers[:4:4], formula.GELUTwoRootPi, 3*formula.GELUTwoRootPi*formula.GELUCube)...)
	f.loop("dx", 1, func(l lanes) {
		v := l.load(x)
		sigmoid, square := f.gate(v, e, c)
		slope, rest := f.line(c[5], c[4], square), f.vec()
		f.sub(rest, e.p[5], sigmoid)
		f.mul(rest, rest, slope)
		f.mul(v, v, sigmoid)
		f.fma(sigmoid, rest, v) // s + x*s*(1-s)*slope
		f.mul(sigmoid, sigmoid, l.load(dout))
		l.store(sigmoid, dx)
	}, dx, dout, x)
	f.end()
}

// sigmoid gives 1/(1+exp(-x)); minusLog2E is -log2(e).
func (f *function) sigmoid(x, minusLog2E vec, e exponent) vec {
	v := f.vec()
	f.mul(v, x, minusLog2E)
	f.clamp(v, e.low, e.high)
	f.logistic(v, e)
	return v
}

func swiglu(s *source) {
	f := s.begin("swigluNEON", "func(out, gate, up []float32)", "computes out = gate*sigmoid(gate)*up.")
	out, gate, up := f.slice("out"), f.slice("gate"), f.slice("up")
	e, c := f.exponential(-math.Log2E)
	f.loop("out", 1, func(l lanes) {
		g := l.load(gate)
		sigmoid := f.sigmoid(g, c[0], e)
		f.mul(g, g, l.load(up))
		f.mul(g, g, sigmoid)
		l.store(g, out)
	}, out, gate, up)
	f.end()
}

func swigluGrad(s *source) {
	f := s.begin("swigluGradNEON", "func(dgate, dup, dout, gate, up []float32)",
		"computes dup = dout*gate*s and dgate = dout*up*(s + gate*s*(1-s)) with s = sigmoid(gate).")
	dgate, dup, dout, gate, up := f.slice("dgate"), f.slice("dup"), f.slice("dout"), f.slice("gate"), f.slice("up")
	e, c := f.exponential(-math.Log2E)
	f.loop("dgate", 1, func(l lanes) {
		g, u, d, rest := l.load(gate), l.load(up), l.load(dout), f.vec()
		sigmoid := f.sigmoid(g, c[0], e)
		f.sub(rest, e.p[5], sigmoid)
		f.mul(d, d, sigmoid) // dout*s
		f.mul(u, u, d)       // dout*s*up
		f.mul(rest, rest, g) // gate*(1-s)
		f.mul(d, d, g)
		l.store(d, dup)
		f.fma(u, u, rest)
		l.store(u, dgate)
	}, dgate, dup, dout, gate, up)
	f.end()
}

// adamW's scalars are LR, 1-Beta1, 1-Beta2, Eps, Decay, 1/Correction1, 1/Correction2,
// GradScale.
func adamW(s *source) {
	f := s.begin("adamWNEON", "func(param, m, v, grad []float32, s *[8]float32)", "is the update of package cpu's adamWGeneric.")
	param, m, v, grad := f.slice("param"), f.slice("m"), f.slice("v"), f.slice("grad")
	c := f.eachSpread(f.integer("s"), 8)
	lr, rest1, rest2, eps, decay, rate1, rate2, gradScale := c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]
	f.loop("param", 1, func(l lanes) {
		g, x, square, d := l.load(grad), l.load(m), l.load(v), f.vec()
		f.mul(g, g, gradScale)
		f.sub(d, g, x)
		f.fma(x, d, rest1)
		l.store(x, m)
		f.mul(g, g, g)
		f.sub(g, g, square)
		f.fma(square, g, rest2)
		l.store(square, v)
		f.mul(square, square, rate2)
		f.sqrt(square, square)
		f.add(square, square, eps)
		f.mul(x, x, rate1)
		f.div(x, x, square)
		p := l.load(param)
		f.fma(x, p, decay)
		f.fms(p, x, lr)
		l.store(p, param)
	}, param, m, v, grad)
	f.end()
}
