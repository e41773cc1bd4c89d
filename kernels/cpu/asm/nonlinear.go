package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func nonlinear() {
	exponential()
	gelu()
	adamW()
}

// clamp limits x to [low, high]; NaN stays, because the instructions give the second
// source (the first operand here) when either is NaN.
func clamp(x reg.VecVirtual, low, high float32) {
	bound := YMM()
	VMOVUPS(constant(high), bound)
	VMINPS(x, bound, x)
	VMOVUPS(constant(low), bound)
	VMAXPS(x, bound, x)
}

// exp replaces x by exp(x): the algorithm of exp32 in package cpu, with the polynomial
// in Estrin's order, which has half the latency of Horner's.
func exp(x reg.VecVirtual) {
	clamp(x, -87.3, 88.3)
	n := YMM()
	VMULPS(constant(math.Log2E), x, n)
	VROUNDPS(Imm(8), n, n) // to nearest
	VFNMADD231PS(constant(0.693359375), n, x)
	VFNMADD231PS(constant(-2.12194440e-4), n, x)
	square := YMM()
	VMULPS(x, x, square)
	sum := line(1.9875691500e-4, 1.3981999507e-3, x)
	for _, c := range [][2]float32{{8.3334519073e-3, 4.1665795894e-2}, {1.6666665459e-1, 5.0000001201e-1}, {1, 1}} {
		VFMADD213PS(line(c[0], c[1], x), square, sum)
	}
	VCVTPS2DQ(n, n)
	VPSLLD(Imm(23), n, n)
	VPADDD(n, sum, x) // multiplies by 2^n
}

// line is a*x + b.
func line(a, b float32, x reg.VecVirtual) reg.VecVirtual {
	v := YMM()
	VMOVUPS(constant(a), v)
	VFMADD213PS(constant(b), x, v)
	return v
}

func exponential() {
	begin("expAVX2", "func(out, x []float32, scale, shift float32) float32", "computes out = exp(x*scale - shift) and gives its sum.")
	out, x := slice("out"), slice("x")
	scale, shift := scalar("scale"), scalar("shift")
	sum := zero()
	loop("out", func(l lanes) {
		v := l.load(x)
		VFMSUB213PS(shift, scale, v)
		exp(v)
		l.drop(v)
		VADDPS(v, sum, sum)
		l.store(v, out)
	})
	Store(fold(sum), ReturnIndex(0))
	end()
}

// Constants of GELU as in package cpu.
const (
	geluTwoRootPi = 1.5957691216057308
	geluCube      = 0.044715
	geluLimit     = 15
)

// gate gives sigmoid(2u) of the limited x and x^2.
func gate(x reg.VecVirtual) (s, square reg.VecVirtual) {
	clamp(x, -geluLimit, geluLimit)
	s, square = YMM(), YMM()
	VMULPS(x, x, square)
	VMOVUPS(constant(-geluTwoRootPi*geluCube), s)
	VFMADD213PS(constant(-geluTwoRootPi), square, s)
	VMULPS(x, s, s)
	exp(s)
	one := YMM()
	VMOVUPS(constant(1), one)
	VADDPS(one, s, s)
	VDIVPS(s, one, s)
	return s, square
}

func gelu() {
	begin("geluAVX2", "func(out, x []float32)", "computes out = GELU(x).")
	out, x := slice("out"), slice("x")
	loop("out", func(l lanes) {
		v, limited := l.load(x), YMM()
		VMOVAPS(v, limited)
		s, _ := gate(limited)
		VMULPS(v, s, s)
		l.store(s, out)
	})
	end()

	begin("geluGradAVX2", "func(dx, dout, x []float32)", "computes dx = dout * GELU'(x).")
	dx, dout := slice("dx"), slice("dout")
	x = slice("x")
	loop("dx", func(l lanes) {
		v := l.load(x)
		s, square := gate(v)
		slope, rest := YMM(), YMM()
		VMOVUPS(constant(3*geluTwoRootPi*geluCube), slope)
		VFMADD213PS(constant(geluTwoRootPi), square, slope)
		VMOVUPS(constant(1), rest)
		VSUBPS(s, rest, rest)
		VMULPS(slope, rest, rest)
		VMULPS(s, v, v)
		VFMADD231PS(rest, v, s) // s + x*s*(1-s)*slope
		VMULPS(l.load(dout), s, s)
		l.store(s, dx)
	})
	end()
}

// adamW's scalars are LR, 1-Beta1, 1-Beta2, Eps, Decay, 1/Correction1, 1/Correction2,
// GradScale.
func adamW() {
	begin("adamWAVX2", "func(param, m, v, grad []float32, s *[8]float32)", "is the update of package cpu's adamWGeneric.")
	param, m, v, grad := slice("param"), slice("m"), slice("v"), slice("grad")
	s := Load(Param("s"), GP64())
	var c []reg.VecVirtual
	for i := range 8 {
		x := YMM()
		VBROADCASTSS(Mem{Base: s, Disp: 4 * i}, x)
		c = append(c, x)
	}
	lr, rest1, rest2, eps, decay, rate1, rate2, gradScale := c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]
	loop("param", func(l lanes) {
		g, x, square := l.load(grad), l.load(m), l.load(v)
		VMULPS(gradScale, g, g)
		d := YMM()
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
