package main

import "fmt"

func softmax(s *source) {
	f := s.begin("softmaxNEON", "func(x []float32, least float32) (top, sum float32)",
		"finds top, the largest of x and least, and computes x = 2^(x-top) and its sum.")
	x, top := f.slice("x"), f.scalar("least")
	e, _ := f.exponential()
	f.run(pass{name: "top", n: f.length("x"), pointers: []reg{x}}, func(l lanes, _ int) {
		v := l.load(x)
		l.fill(v)
		f.max(top, top, v)
	})
	f.highest(top, top)
	f.give(top, "top")
	f.op("VDUP", "%v.S[0], %v.S4", top, top)
	sum := f.vec()
	f.zero(sum)
	again := f.slice("x")
	f.run(pass{name: "power", n: f.length("x"), pointers: []reg{again}}, func(l lanes, _ int) {
		v := l.load(again)
		f.sub(v, v, top)
		f.max(v, v, e.low)
		f.exp2(v, e)
		l.drop(v)
		f.add(sum, sum, v)
		l.store(v, again)
	})
	f.total(sum, sum)
	f.give(sum, "sum")
	f.end()
}

func softmaxGrad(s *source) {
	f := s.begin("softmaxGradNEON", "func(p, dp []float32, lse, delta float32)", "computes p = 2^(p-lse) and dp = p*(dp-delta).")
	p, dp, lse, delta := f.slice("p"), f.slice("dp"), f.scalar("lse"), f.scalar("delta")
	e, _ := f.exponential()
	f.loop("p", 1, func(l lanes) {
		v, d := l.load(p), l.load(dp)
		f.sub(v, v, lse)
		f.clamp(v, e.low, e.high)
		f.exp2(v, e)
		f.sub(d, d, delta)
		f.mul(d, d, v)
		l.store(v, p)
		l.store(d, dp)
	}, p, dp)
	f.end()
}

func rotate(s *source) {
	f := s.begin("rotateNEON", "func(x, cos, sin []float32, sign float32)",
		"turns the pairs (x[i], x[i+half]) of each 2*half floats of x, with half the length of cos and sin.")
	low, left, half, sign := f.slice("x"), f.length("x"), f.length("cos"), f.scalar("sign")
	high, cos, sin, n := f.reg(), f.reg(), f.reg(), f.reg()
	f.label("head")
	f.op("SUB", "%v<<1, %v", half, left)
	f.op("TBNZ", "$63, %v, end", left)
	f.op("ADD", "%v<<2, %v, %v", half, low, high)
	f.op("MOVD", "cos_base+%d(FP), %v", f.offset("cos"), cos)
	f.op("MOVD", "sin_base+%d(FP), %v", f.offset("sin"), sin)
	f.op("MOVD", "%v, %v", half, n)
	f.run(pass{name: "pairs", n: n, pointers: []reg{low, high, cos, sin}}, func(l lanes, _ int) {
		c, sine, x, y := l.load(cos), l.load(sin), l.load(low), l.load(high)
		a, b := f.vec(), f.vec()
		f.mul(sine, sine, sign)
		f.mul(a, x, c)
		f.fms(a, y, sine)
		f.mul(b, x, sine)
		f.fma(b, y, c)
		l.store(a, low)
		l.store(b, high)
	})
	f.op("MOVD", "%v, %v", high, low) // the next pairs begin behind these
	f.op("B", "head")
	f.label("end")
	f.end()
}

// weighted keeps eight vectors of a column in registers, then one, then what is left.
func weighted(s *source) {
	f := s.begin("weightedNEON", "func(out, weights, rows []float32, stride int)", "adds weights[i] times the row at i*stride of rows to out.")
	c := &columns{
		function: f, out: f.slice("out"), n: f.length("out"), rows: f.slice("rows"), stride: f.stride("stride"),
		row: f.reg(), weight: f.reg(), left: f.reg(),
	}
	for _, vectors := range []int{8, 1} {
		c.column(lanes{f: f}, vectors)
	}
	c.column(lanes{f: f, single: true}, 1)
	f.end()
}

// columns is the state of weighted.
type columns struct {
	*function
	out, n, rows, stride reg
	row, weight, left    reg
}

// column handles as many floats of out as `vectors` accesses reach, again and again.
func (c *columns) column(l lanes, vectors int) {
	floats := vectors * vectorFloats
	if l.single {
		floats = 1
	}
	name := fmt.Sprintf("column%d", floats)
	c.label(name)
	c.op("CMP", "$%d, %v", floats, c.n)
	c.op("BLT", "%sDone", name)
	c.scoped(func() {
		sums := make([]vec, vectors)
		c.each(l, sums, func(at lanes, k int) { sums[k] = at.load(c.out) })
		c.addRows(name, func(weight vec) {
			c.each(l, sums, func(at lanes, k int) {
				c.scoped(func() { c.fma(sums[k], at.load(c.row), weight) })
			})
		})
		c.each(l, sums, func(at lanes, k int) { at.store(sums[k], c.out) })
	})
	c.op("ADD", "$%d, %v", 4*floats, c.out)
	c.op("ADD", "$%d, %v", 4*floats, c.rows)
	c.op("SUB", "$%d, %v", floats, c.n)
	c.op("B", "%s", name)
	c.label(name + "Done")
}

// each calls do with the place of each vector of a column.
func (c *columns) each(l lanes, sums []vec, do func(at lanes, k int)) {
	for k := range sums {
		l.disp = 4 * vectorFloats * k
		do(l, k)
	}
}

// addRows emits body for each row, with its weight in all lanes.
func (c *columns) addRows(name string, body func(weight vec)) {
	w := c.vec()
	c.op("MOVD", "%v, %v", c.rows, c.row)
	c.op("MOVD", "weights_base+%d(FP), %v", c.offset("weights"), c.weight)
	c.op("MOVD", "weights_len+%d(FP), %v", c.offset("weights")+8, c.left)
	c.label(name + "Row")
	c.op("CBZ", "%v, %sRowDone", c.left, name)
	c.op("VLD1R.P", "4(%v), [%v.S4]", c.weight, w)
	body(w)
	c.op("ADD", "%v, %v", c.stride, c.row)
	c.op("SUB", "$1, %v", c.left)
	c.op("B", "%sRow", name)
	c.label(name + "RowDone")
}
