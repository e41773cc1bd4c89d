package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// normalized is (x-mean)*rstd.
func normalized(l lanes, x reg.Register, mean, rstd reg.VecVirtual) reg.VecVirtual {
	v := l.load(x)
	VSUBPS(mean, v, v)
	VMULPS(rstd, v, v)
	return v
}

func norm() {
	begin("normAVX2", "func(out, x, w, b []float32, mean, rstd float32)", "computes out = (x-mean)*rstd*w + b.")
	out, x, w, b := slice("out"), slice("x"), slice("w"), slice("b")
	mean, rstd := scalar("mean"), scalar("rstd")
	loop("out", func(l lanes) {
		v := normalized(l, x, mean, rstd)
		VFMADD213PS(l.load(b), l.load(w), v)
		l.store(v, out)
	})
	end()
}

func normSums() {
	begin("normSumsAVX2", "func(dout, x, w []float32, mean, rstd float32) (plain, weighted float32)",
		"gives the sums of dout*w and of dout*w*(x-mean)*rstd.")
	dout, x, w := slice("dout"), slice("x"), slice("w")
	mean, rstd := scalar("mean"), scalar("rstd")
	plain, weighted := zeros(), zeros()
	unrolled("", "dout", len(plain), func(l lanes, k int) {
		v, g := normalized(l, x, mean, rstd), l.load(dout)
		VMULPS(l.load(w), g, g) // zero past the end
		VADDPS(g, plain[k], plain[k])
		VFMADD231PS(v, g, weighted[k])
	})
	Store(plain.total(), Return("plain"))
	Store(weighted.total(), Return("weighted"))
	end()
}

func normGrad() {
	begin("normGradAVX2", "func(dx, base, dout, x, w []float32, s *[4]float32)",
		"computes dx = base + rstd*(dout*w - s[2] - (x-mean)*rstd*s[3]) with mean s[0] and rstd s[1].")
	dx, base, dout, x, w := slice("dx"), slice("base"), slice("dout"), slice("x"), slice("w")
	s := Load(Param("s"), GP64())
	var c [4]reg.VecVirtual
	for i := range c {
		c[i] = YMM()
		VBROADCASTSS(Mem{Base: s, Disp: 4 * i}, c[i])
	}
	loop("dx", func(l lanes) {
		v, g := normalized(l, x, c[0], c[1]), l.load(dout)
		VFMSUB132PS(l.load(w), c[2], g)
		VFNMADD231PS(v, c[3], g)
		sum := l.load(base)
		VFMADD231PS(g, c[1], sum)
		l.store(sum, dx)
	})
	end()
}

func normWeightGrad() {
	begin("normWeightGradAVX2", "func(dw, db, dout, x []float32, mean, rstd float32)",
		"adds dout*(x-mean)*rstd to dw and dout to db.")
	dw, db, dout, x := slice("dw"), slice("db"), slice("dout"), slice("x")
	mean, rstd := scalar("mean"), scalar("rstd")
	loop("dw", func(l lanes) {
		v, g := normalized(l, x, mean, rstd), l.load(dout)
		weight, bias := l.load(dw), l.load(db)
		VFMADD231PS(v, g, weight)
		VADDPS(g, bias, bias)
		l.store(weight, dw)
		l.store(bias, db)
	})
	end()
}
