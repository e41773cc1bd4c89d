package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pnode/kernels/cpu/asm/formula"
)

// nonlinear emits what is bound by the length of its chains of operations, of which wide vectors
// let a processor keep more elements in flight; adamW is bound by memory.
func nonlinear() {
	inBoth(func() {
		exponential()
		softmax()
		softmaxGrad()
		gelu()
		swiglu()
	})
	inHalves()
	adamW()
}

// clamp limits x to [low, high]; NaN stays, because the instructions give the second
// source (the first operand here) when either is NaN.
func clamp(x reg.VecVirtual, low, high float32) {
	bound := filled(high)
	VMINPS(x, bound, x)
	bound = filled(low)
	VMAXPS(x, bound, x)
}

// exp2 replaces x, which must lie in [-126, 126], by 2^x: the algorithm of exp2Generic in
// package cpu, with the polynomial in Estrin's order, which has half the latency of
// Horner's.
func exp2(x reg.VecVirtual) {
	n, square := vector(), vector()
	if wide() { // rounds to the nearest integers
		VRNDSCALEPS(Imm(8), x, n)
	} else {
		VROUNDPS(Imm(8), x, n)
	}
	VSUBPS(n, x, x)
	VMULPS(x, x, square)
	p := formula.Exp2
	sum := line(p[0], p[1], x)
	VFMADD213PS(line(p[2], p[3], x), square, sum)
	VFMADD213PS(line(p[4], p[5], x), square, sum)
	VCVTPS2DQ(n, n)
	VPSLLD(Imm(23), n, n)
	VPADDD(n, sum, x) // multiplies by 2^n
}

// line is a*x + b.
func line(a, b float32, x reg.VecVirtual) reg.VecVirtual {
	v := filled(a)
	with(b, VFMADD213PS, VFMADD213PS_BCST, x, v)
	return v
}

// power writes 2^v, of powers of at least -126, and adds it to the sum.
func power(l lanes, v, sum reg.VecVirtual, out reg.Register) {
	VMAXPS(v, filled(-126), v)
	exp2(v)
	l.drop(v)
	VADDPS(v, sum, sum)
	l.store(v, out)
}

func exponential() {
	begin(named("exp2"), "func(out, x []float32, scale, shift float32) float32", "computes out = 2^((x-shift)*scale), for powers of at most 126, and gives its sum.")
	out, x := slice("out"), slice("x")
	scale, shift := scalar("scale"), scalar("shift")
	sum := zero()
	loop("out", func(l lanes) {
		v := l.load(x)
		VSUBPS(shift, v, v)
		VMULPS(scale, v, v)
		power(l, v, sum, out)
	})
	Store(fold(sum), ReturnIndex(0))
	end()
}

func softmax() {
	begin(named("softmax"), "func(x []float32, least float32) (top, sum float32)",
		"finds top, the largest of x and least, and computes x = 2^(x-top) and its sum.")
	x, least := slice("x"), scalar("least")
	top := vector()
	VMOVAPS(least, top)
	pass("top", "x", func(l lanes) {
		v := l.load(x)
		l.replace(v, least)
		VMAXPS(v, top, top)
	})
	largest := highest(top)
	Store(largest, Return("top"))
	VBROADCASTSS(largest, top)
	sum := zero()
	pass("exp", "x", func(l lanes) {
		v := l.load(x)
		VSUBPS(top, v, v)
		power(l, v, sum, x)
	})
	Store(fold(sum), Return("sum"))
	end()
}

// inHalves emits softmax and its gradient for products of BF16 numbers.
func inHalves() {
	registers = zmm
	softmaxHalves()
	softmaxGradHalves()
	registers = ymm
}

// storeBF16 writes v rounded to BF16.
func (l lanes) storeBF16(v reg.VecVirtual, base reg.Register) {
	half := nearestBF16(v)
	if l.mask == nil {
		VMOVDQU(half, l.halves(base))
	} else {
		VMOVDQU16(half, l.mask, l.halves(base))
	}
}

func softmaxHalves() {
	begin("softmaxHalvesAVX512", "func(out []uint16, x []float32, scale, least float32) (top, sum float32)",
		"finds top, the largest of x*scale and least, and computes out = 2^(x*scale-top) in BF16 and the sum of these powers before they are rounded.")
	x, scale := slice("x"), scalar("scale")
	lowest, largest := filled(float32(math.Inf(-1))), vector()
	VMOVAPS(lowest, largest)
	pass("top", "x", func(l lanes) {
		v := l.load(x)
		l.replace(v, lowest)
		VMAXPS(v, largest, largest)
	})
	top, least := highest(largest), XMM()
	VMULSS(scale.AsX(), top, top)
	VMOVSS(argument(Param("least")), least)
	VMAXSS(least, top, top)
	Store(top, Return("top"))
	shift, sum, out := vector(), zero(), slice("out")
	VBROADCASTSS(top, shift)
	pass("exp", "x", func(l lanes) {
		v := l.load(x)
		VMULPS(scale, v, v)
		VSUBPS(shift, v, v) // after rounding: a top is never exceeded, whatever its size
		VMAXPS(v, filled(-126), v)
		exp2(v)
		l.drop(v)
		VADDPS(v, sum, sum)
		l.storeBF16(v, out)
	})
	Store(fold(sum), Return("sum"))
	end()
}

func softmaxGradHalves() {
	begin("softmaxGradHalvesAVX512", "func(p, dp []uint16, x, dx []float32, by *[5]float32)",
		"computes p = 2^(x*by[0]-by[1])*by[2] and dp = p*(dx-by[3])*by[4] in BF16.")
	p, dp, x, dx := slice("p"), slice("dp"), slice("x"), slice("dx")
	by := Load(Param("by"), GP64())
	var factors []reg.VecVirtual
	for i := range 5 {
		v := vector()
		VBROADCASTSS(Mem{Base: by, Disp: 4 * i}, v)
		factors = append(factors, v)
	}
	loop("x", func(l lanes) {
		v, d := l.load(x), l.load(dx)
		VMULPS(factors[0], v, v)
		VSUBPS(factors[1], v, v)
		clamp(v, -126, 126)
		exp2(v)
		VMULPS(factors[2], v, v)
		VSUBPS(factors[3], d, d)
		VMULPS(v, d, d)
		VMULPS(factors[4], d, d)
		l.storeBF16(v, p)
		l.storeBF16(d, dp)
	})
	end()
}

func softmaxGrad() {
	begin(named("softmaxGrad"), "func(p, dp []float32, lse, delta float32)",
		"computes p = 2^(p-lse) and dp = p*(dp-delta).")
	p, dp := slice("p"), slice("dp")
	lse, delta := scalar("lse"), scalar("delta")
	loop("p", func(l lanes) {
		v, d := l.load(p), l.load(dp)
		VSUBPS(lse, v, v)
		clamp(v, -126, 126)
		exp2(v)
		VSUBPS(delta, d, d)
		VMULPS(v, d, d)
		l.store(v, p)
		l.store(d, dp)
	})
	end()
}

// logistic replaces x by 1/(1+2^x), for x in [-126, 126], and gives a vector of ones.
func logistic(x reg.VecVirtual) (one reg.VecVirtual) {
	exp2(x)
	one = filled(1)
	VADDPS(one, x, x)
	VDIVPS(x, one, x)
	return one
}

// gate gives sigmoid(2u) of the limited x and x^2.
func gate(x reg.VecVirtual) (s, square, one reg.VecVirtual) {
	clamp(x, -formula.GELULimit, formula.GELULimit)
	s, square = filled(-formula.GELUTwoRootPi*formula.GELUCube*math.Log2E), vector()
	VMULPS(x, x, square)
	with(-formula.GELUTwoRootPi*math.Log2E, VFMADD213PS, VFMADD213PS_BCST, square, s)
	VMULPS(x, s, s)
	return s, square, logistic(s)
}

func gelu() {
	begin(named("gelu"), "func(out, x []float32)", "computes out = GELU(x).")
	out, x := slice("out"), slice("x")
	loop("out", func(l lanes) {
		v, limited := l.load(x), vector()
		VMOVAPS(v, limited)
		s, _, _ := gate(limited)
		VMULPS(v, s, s)
		l.store(s, out)
	})
	end()

	begin(named("geluGrad"), "func(dx, dout, x []float32)", "computes dx = dout * GELU'(x).")
	dx, dout := slice("dx"), slice("dout")
	x = slice("x")
	loop("dx", func(l lanes) {
		v := l.load(x)
		s, square, rest := gate(v)
		slope := filled(3 * formula.GELUTwoRootPi * formula.GELUCube)
		with(formula.GELUTwoRootPi, VFMADD213PS, VFMADD213PS_BCST, square, slope)
		VSUBPS(s, rest, rest)
		VMULPS(slope, rest, rest)
		VMULPS(s, v, v)
		VFMADD231PS(rest, v, s) // s + x*s*(1-s)*slope
		VMULPS(l.load(dout), s, s)
		l.store(s, dx)
	})
	end()
}

// sigmoid gives 1/(1+exp(-x)) and a vector of ones.
func sigmoid(x reg.VecVirtual) (s, one reg.VecVirtual) {
	s = vector()
	with(-math.Log2E, VMULPS, VMULPS_BCST, x, s)
	clamp(s, -126, 126)
	return s, logistic(s)
}

func swiglu() {
	begin(named("swiglu"), "func(out, gate, up []float32)", "computes out = gate*sigmoid(gate)*up.")
	out, gate, up := slice("out"), slice("gate"), slice("up")
	loop("out", func(l lanes) {
		g := l.load(gate)
		s, _ := sigmoid(g)
		VMULPS(l.load(up), g, g)
		VMULPS(s, g, g)
		l.store(g, out)
	})
	end()

	begin(named("swigluGrad"), "func(dgate, dup, dout, gate, up []float32)",
		"computes dup = dout*gate*s and dgate = dout*up*(s + gate*s*(1-s)) with s = sigmoid(gate).")
	dgate, dup, dout := slice("dgate"), slice("dup"), slice("dout")
	gate, up = slice("gate"), slice("up")
	loop("dgate", func(l lanes) {
		g := l.load(gate)
		s, rest := sigmoid(g)
		u, d := l.load(up), l.load(dout)
		VSUBPS(s, rest, rest)
		VMULPS(s, d, d)       // dout*s
		VMULPS(d, u, u)       // dout*s*up
		VMULPS(g, rest, rest) // gate*(1-s)
		VMULPS(d, g, d)
		l.store(d, dup)
		VFMADD213PS(u, u, rest)
		l.store(rest, dgate)
	})
	end()
}

// adamW's scalars are LR, 1-Beta1, 1-Beta2, Eps, Decay, 1/Correction1, 1/Correction2,
// GradScale.
func adamW() {
	begin(named("adamW"), "func(param, m, v, grad []float32, s *[8]float32)", "is the update of package cpu's adamWGeneric.")
	param, m, v, grad := slice("param"), slice("m"), slice("v"), slice("grad")
	s := Load(Param("s"), GP64())
	var c []reg.VecVirtual
	for i := range 8 {
		x := vector()
		VBROADCASTSS(Mem{Base: s, Disp: 4 * i}, x)
		c = append(c, x)
	}
	lr, rest1, rest2, eps, decay, rate1, rate2, gradScale := c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]
	loop("param", func(l lanes) {
		g, x, square := l.load(grad), l.load(m), l.load(v)
		VMULPS(gradScale, g, g)
		d := vector()
		VSUBPS(x, g, d)
		VFMADD231PS(d, rest1, x)
		l.store(x, m)
		VMULPS(g, g, g)
		VSUBPS(square, g, g)
		VFMADD231PS(g, rest2, square)
		l.store(square, v)
		VMULPS(rate2, square, square)
		VSQRTPS(square, square)
		VADDPS(eps, square, square)
		VMULPS(rate1, x, x)
		VDIVPS(square, x, x)
		p := l.load(param)
		VFMADD231PS(decay, p, x)
		VFNMADD231PS(lr, x, p)
		l.store(p, param)
	})
	end()
}
