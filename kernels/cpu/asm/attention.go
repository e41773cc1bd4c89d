package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func attention() {
	softmax()
	softmaxGrad()
	axpy()
	rotate()
}

func softmax() {
	begin("softmaxAVX2", "func(x []float32, least float32) (top, sum float32)",
		"finds top, the largest of x and least, and computes x = 2^(x-top) and its sum.")
	x, least := slice("x"), scalar("least")
	top := YMM()
	VMOVAPS(least, top)
	pass("top", "x", func(l lanes) {
		v := l.load(x)
		if l.mask != nil {
			VBLENDVPS(l.mask, v, least, v)
		}
		VMAXPS(v, top, top)
	})
	largest := highest(top)
	Store(largest, Return("top"))
	VBROADCASTSS(largest, top)
	sum := zero()
	pass("exp", "x", func(l lanes) {
		v := l.load(x)
		VSUBPS(top, v, v)
		atLeast(-126, v)
		exp2(v)
		l.drop(v)
		VADDPS(v, sum, sum)
		l.store(v, x)
	})
	Store(fold(sum), Return("sum"))
	end()
}

// highest gives an XMM with the largest lane of v.
func highest(v reg.VecVirtual) reg.VecVirtual {
	high, low := XMM(), v.AsX()
	VEXTRACTF128(Imm(1), v, high)
	VMAXPS(low, high, high)
	VMOVHLPS(high, high, low)
	VMAXPS(low, high, high)
	VMOVSHDUP(high, low)
	VMAXSS(low, high, high)
	return high
}

func softmaxGrad() {
	begin("softmaxGradAVX2", "func(p, dp []float32, lse, delta float32)",
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

func axpy() {
	begin("axpyAVX2", "func(y, x []float32, s float32)", "computes y += s*x.")
	y, x, s := slice("y"), slice("x"), scalar("s")
	loop("y", func(l lanes) {
		v := l.load(y)
		VFMADD231PS(l.load(x), s, v)
		l.store(v, y)
	})
	end()

	begin("timesAVX2", "func(y, x []float32, s float32)", "computes y = s*x.")
	y, x, s = slice("y"), slice("x"), scalar("s")
	loop("y", func(l lanes) {
		v := l.load(x)
		VMULPS(s, v, v)
		l.store(v, y)
	})
	end()
}

func maximum() {
	begin("maxAVX2", "func(x []float32) float32", "is the largest element, minus infinity without any.")
	x := slice("x")
	least, top := YMM(), YMM()
	VMOVUPS(constant(float32(math.Inf(-1))), least)
	VMOVAPS(least, top)
	loop("x", func(l lanes) {
		v := l.load(x)
		if l.mask != nil {
			VBLENDVPS(l.mask, v, least, v)
		}
		VMAXPS(top, v, top)
	})
	Store(highest(top), ReturnIndex(0))
	end()
}

func rotate() {
	begin("rotateAVX2", "func(x, cos, sin []float32, sign float32)",
		"turns the pairs (x[i], x[i+half]) of each 2*half floats of x, with half the length of cos and sin.")
	low, cos, sin := slice("x"), slice("cos"), slice("sin")
	sign := scalar("sign")
	left, half := Load(Param("x").Len(), GP64()), Load(Param("cos").Len(), GP64())
	high := GP64()
	LEAQ(Mem{Base: low, Index: half, Scale: 4}, high)
	Label("head")
	SUBQ(half, left)
	SUBQ(half, left)
	JL(LabelRef("done"))
	pass("pairs", "cos", func(l lanes) {
		c, s, x, y := l.load(cos), l.load(sin), l.load(low), l.load(high)
		VMULPS(sign, s, s)
		a, b := YMM(), YMM()
		VMULPS(s, y, a)
		VFMSUB231PS(c, x, a)
		VMULPS(s, x, b)
		VFMADD231PS(c, y, b)
		l.store(a, low)
		l.store(b, high)
	})
	LEAQ(Mem{Base: low, Index: half, Scale: 8}, low)
	LEAQ(Mem{Base: high, Index: half, Scale: 8}, high)
	JMP(LabelRef("head"))
	Label("done")
	end()
}
