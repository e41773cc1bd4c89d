package cpu

import "pnode/kernels"

func (d *Device) geluForward(c kernels.Call) {
	out, x := floats(c.Args[0]), floats(c.Args[1])
	d.ranges(len(out), func(from, to int) { d.v.gelu(out[from:to], x[from:to]) })
}

func (d *Device) geluBackward(c kernels.Call) {
	dx, dout, x := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2])
	d.ranges(len(dx), func(from, to int) { d.v.geluGrad(dx[from:to], dout[from:to], x[from:to]) })
}
