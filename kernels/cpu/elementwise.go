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

func (d *Device) copy(c kernels.Call) {
	out, x := floats(c.Args[0]), floats(c.Args[1])
	d.ranges(len(out), func(from, to int) { copy(out[from:to], x[from:to]) })
}
