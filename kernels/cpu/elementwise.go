package cpu

import (
	"math"

	"pnode/kernels"
)

// grain is the number of elements in a task of an element-wise op: 64 KiB an operand.
const grain = 1 << 14

// ranges calls do with the bounds of consecutive ranges of [0, n), in parallel.
func (d *Device) ranges(n int, do func(from, to int)) {
	d.pool.run(blocks(n, grain), func(_ *worker, task int) {
		do(task*grain, min(n, (task+1)*grain))
	})
}

// rows calls do with the bounds of consecutive ranges of [0, n) rows of width c.
func (d *Device) rows(n, c int, do func(from, to int)) {
	per := max(1, grain/c)
	d.pool.run(blocks(n, per), func(_ *worker, task int) {
		do(task*per, min(n, (task+1)*per))
	})
}

func (d *Device) fill(c kernels.Call) {
	x := floats(c.Args[0])
	d.ranges(len(x), func(from, to int) {
		part := x[from:to]
		if math.Float32bits(c.Scalars[0]) == 0 {
			clear(part)
			return
		}
		for i := range part {
			part[i] = c.Scalars[0]
		}
	})
}

// combine computes out = as*a + bs*b; out may be a or b. It goes through pieces that stay in the first cache.
func (v *variant) combine(out, a, b []float32, as, bs float32) {
	const most = 1 << 11
	for from := 0; from < len(out); from += most {
		to := min(from+most, len(out))
		o, x, y, xs, ys := out[from:to], a[from:to], b[from:to], as, bs
		if &o[0] == &y[0] {
			x, y, xs, ys = y, x, ys, xs
		}
		if &o[0] == &y[0] { // all are the same
			xs, ys = xs+ys, 0
		}
		copy(o, x) // where that is another
		v.scale(o, xs)
		if ys != 0 {
			v.axpy(o, y, ys)
		}
	}
}

func (d *Device) copy(c kernels.Call) {
	out, x := floats(c.Args[0]), floats(c.Args[1])
	d.ranges(len(out), func(from, to int) { copy(out[from:to], x[from:to]) })
}
