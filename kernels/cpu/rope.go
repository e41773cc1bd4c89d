package cpu

import "pnode/kernels"

func (d *Device) rope(c kernels.Call) {
	x, cos, sin := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2])
	n, positions, heads, channels, width, start := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5]
	half, sign := channels/2, float32(1)
	if c.Flags&kernels.Inverse != 0 {
		sign = -1
	}
	d.rows(n, heads*channels, func(from, to int) {
		for row := from; row < to; row++ {
			at := (start + row%positions) * half
			d.v.rotate(x[row*width:][:heads*channels], cos[at:at+half], sin[at:at+half], sign)
		}
	})
}

func rotateGeneric(x, cos, sin []float32, sign float32) {
	half := len(cos)
	for ; len(x) > 0; x = x[2*half:] {
		for i, c := range cos {
			s, low, high := sin[i]*sign, x[i], x[i+half]
			x[i], x[i+half] = low*c-high*s, high*c+low*s
		}
	}
}
