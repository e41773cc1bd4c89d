package cpu

import (
	"math"

	"pnode/kernels"
)

func (d *Device) layerNormForward(c kernels.Call) {
	out, means, rstds := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2])
	x, w, b := floats(c.Args[3]), floats(c.Args[4]), floats(c.Args[5])
	n, width, eps := c.Dims[0], c.Dims[1], c.Scalars[0]
	d.rows(n, width, func(from, to int) {
		for i := from; i < to; i++ {
			row := x[i*width : (i+1)*width]
			mean := d.v.sum(row) / float32(width)
			variance := d.v.deviation(row, mean) / float32(width)
			rstd := float32(1 / math.Sqrt(float64(variance+eps)))
			d.v.norm(out[i*width:(i+1)*width], row, w, b, mean, rstd)
			means[i], rstds[i] = mean, rstd
		}
	})
}

func (d *Device) layerNormBackwardInput(c kernels.Call) {
	dx, dout, x := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2])
	w, means, rstds := floats(c.Args[3]), floats(c.Args[4]), floats(c.Args[5])
	n, width := c.Dims[0], c.Dims[1]
	d.rows(n, width, func(from, to int) {
		var s [4]float32
		for i := from; i < to; i++ {
			at, end := i*width, (i+1)*width
			plain, weighted := d.v.normSums(dout[at:end], x[at:end], w, means[i], rstds[i])
			s = [4]float32{means[i], rstds[i], plain / float32(width), weighted / float32(width)}
			if c.Flags&kernels.Accumulate == 0 {
				clear(dx[at:end])
			}
			d.v.normGrad(dx[at:end], dout[at:end], x[at:end], w, &s)
		}
	})
}

func (d *Device) layerNormBackwardWeight(c kernels.Call) error {
	dw, db, dout := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2])
	x, means, rstds := floats(c.Args[3]), floats(c.Args[4]), floats(c.Args[5])
	n, width := c.Dims[0], c.Dims[1]
	return d.columns(n, 2*width,
		func(part []float32, i int) {
			at, end := i*width, (i+1)*width
			d.v.normWeightGrad(part[:width], part[width:], dout[at:end], x[at:end], means[i], rstds[i])
		},
		func(part []float32) {
			d.v.add(dw, dw, part[:width])
			d.v.add(db, db, part[width:])
		})
}
