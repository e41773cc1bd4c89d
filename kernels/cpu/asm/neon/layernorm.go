package main

// normalized is (x-mean)*rstd.
func (l lanes) normalized(x reg, mean, rstd vec) vec {
	v := l.load(x)
	l.f.sub(v, v, mean)
	l.f.mul(v, v, rstd)
	return v
}

func norm(s *source) {
	f := s.begin("normNEON", "func(out, x, w, b []float32, mean, rstd float32)", "computes out = (x-mean)*rstd*w + b.")
	out, x, w, b := f.slice("out"), f.slice("x"), f.slice("w"), f.slice("b")
	mean, rstd := f.scalar("mean"), f.scalar("rstd")
	f.loop("out", 1, func(l lanes) {
		v, sum := l.normalized(x, mean, rstd), l.load(b)
		f.fma(sum, v, l.load(w))
		l.store(sum, out)
	}, out, x, w, b)
	f.end()
}

func normSums(s *source) {
	f := s.begin("normSumsNEON", "func(dout, x, w []float32, mean, rstd float32) (plain, weighted float32)",
		"gives the sums of dout*w and of dout*w*(x-mean)*rstd.")
	dout, x, w := f.slice("dout"), f.slice("x"), f.slice("w")
	mean, rstd := f.scalar("mean"), f.scalar("rstd")
	plain, weighted := f.zeros(), f.zeros()
	f.run(pass{name: "vector", n: f.length("dout"), pointers: []reg{dout, x, w}, unroll: len(plain)}, func(l lanes, k int) {
		v, g := l.normalized(x, mean, rstd), l.load(dout)
		f.mul(g, g, l.load(w)) // zero past the end
		f.add(plain[k], plain[k], g)
		f.fma(weighted[k], g, v)
	})
	f.give(plain.total(f), "plain")
	f.give(weighted.total(f), "weighted")
	f.end()
}

func normGrad(s *source) {
	f := s.begin("normGradNEON", "func(dx, base, dout, x, w []float32, s *[4]float32)",
		"computes dx = base + rstd*(dout*w - s[2] - (x-mean)*rstd*s[3]) with mean s[0] and rstd s[1].")
	dx, base, dout, x, w := f.slice("dx"), f.slice("base"), f.slice("dout"), f.slice("x"), f.slice("w")
	c := f.eachSpread(f.integer("s"), 4)
	f.loop("dx", 1, func(l lanes) {
		v, g, sum := l.normalized(x, c[0], c[1]), l.load(dout), l.load(base)
		f.mul(g, g, l.load(w))
		f.sub(g, g, c[2])
		f.fms(g, v, c[3])
		f.fma(sum, g, c[1])
		l.store(sum, dx)
	}, dx, base, dout, x, w)
	f.end()
}

func normWeightGrad(s *source) {
	f := s.begin("normWeightGradNEON", "func(dw, db, dout, x []float32, mean, rstd float32)",
		"adds dout*(x-mean)*rstd to dw and dout to db.")
	dw, db, dout, x := f.slice("dw"), f.slice("db"), f.slice("dout"), f.slice("x")
	mean, rstd := f.scalar("mean"), f.scalar("rstd")
	f.loop("dw", 1, func(l lanes) {
		v, g := l.normalized(x, mean, rstd), l.load(dout)
		weight, bias := l.load(dw), l.load(db)
		f.fma(weight, g, v)
		f.add(bias, bias, g)
		l.store(weight, dw)
		l.store(bias, db)
	}, dw, db, dout, x)
	f.end()
}
