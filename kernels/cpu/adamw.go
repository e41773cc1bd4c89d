package cpu

import "pnode/kernels"

func (d *Device) adamW(c kernels.Call) {
	param, m, v, grad := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2]), floats(c.Args[3])
	d.ranges(len(param), func(from, to int) {
		d.v.adamW(param[from:to], m[from:to], v[from:to], grad[from:to], &c.Scalars)
	})
}
