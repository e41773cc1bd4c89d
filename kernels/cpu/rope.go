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
			for head := range heads {
				pairs := x[row*width+head*channels:][:channels]
				d.v.rotate(pairs[:half], pairs[half:], cos[at:at+half], sin[at:at+half], sign)
			}
		}
	})
}

func rotateGeneric(low, high, cos, sin []float32, sign float32) {
	for i, c := range cos {
		s := sin[i] * sign
		low[i], high[i] = low[i]*c-high[i]*s, high[i]*c+low[i]*s
	}
}
