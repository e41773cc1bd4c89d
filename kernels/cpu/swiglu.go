package cpu

import "pnode/kernels"

func (d *Device) swigluForward(c kernels.Call) {
	out, gateUp, f := floats(c.Args[0]), floats(c.Args[1]), c.Dims[1]
	d.rows(c.Dims[0], f, func(from, to int) {
		for i := from; i < to; i++ {
			row := gateUp[2*i*f : 2*(i+1)*f]
			d.v.swiglu(out[i*f:(i+1)*f], row[:f], row[f:])
		}
	})
}

func (d *Device) swigluBackward(c kernels.Call) {
	dgateUp, dout, gateUp, f := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2]), c.Dims[1]
	d.rows(c.Dims[0], f, func(from, to int) {
		for i := from; i < to; i++ {
			grad, row := dgateUp[2*i*f:2*(i+1)*f], gateUp[2*i*f:2*(i+1)*f]
			d.v.swigluGrad(grad[:f], grad[f:], dout[i*f:(i+1)*f], row[:f], row[f:])
		}
	})
}
