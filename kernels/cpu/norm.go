package cpu

import (
	"math"

	"pnode/kernels"
)

// The RMS norm is the layer norm with mean and bias zero, so one set of loops serves both.

// normForward are the operands of a forward norm of x = a + b, kept in sum, or of x = a
// where b is nil.
type normForward struct {
	out, sum, means, rstds []float32 // means is nil for the RMS norm
	a, b                   []float32
	w, bias                []float32
	width                  int
	eps                    float32
}

func (d *Device) layerNormForward(c kernels.Call) {
	o := normForward{
		out: floats(c.Args[0]), means: floats(c.Args[1]), rstds: floats(c.Args[2]),
		a: floats(c.Args[3]), w: floats(c.Args[4]), bias: floats(c.Args[5]),
		width: c.Dims[1], eps: c.Scalars[0],
	}
	if c.Op == kernels.OpAddLayerNormForward {
		o.sum, o.means, o.rstds = floats(c.Args[1]), floats(c.Args[2]), floats(c.Args[3])
		o.a, o.b, o.w, o.bias = floats(c.Args[4]), floats(c.Args[5]), floats(c.Args[6]), floats(c.Args[7])
	}
	d.rows(c.Dims[0], o.width, func(from, to int) { o.rows(d.v, from, to) })
}

func (d *Device) rmsNormForward(c kernels.Call) error {
	zeros, err := d.zeros(c.Dims[1])
	if err != nil {
		return err
	}
	o := normForward{
		out: floats(c.Args[0]), rstds: floats(c.Args[1]),
		a: floats(c.Args[2]), w: floats(c.Args[3]), bias: zeros,
		width: c.Dims[1], eps: c.Scalars[0],
	}
	if c.Op == kernels.OpAddRMSNormForward {
		o.sum, o.rstds = floats(c.Args[1]), floats(c.Args[2])
		o.a, o.b, o.w = floats(c.Args[3]), floats(c.Args[4]), floats(c.Args[5])
	}
	d.rows(c.Dims[0], o.width, func(from, to int) { o.rows(d.v, from, to) })
	return nil
}

func (o *normForward) rows(v *variant, from, to int) {
	for i := from; i < to; i++ {
		at, end := i*o.width, (i+1)*o.width
		row := o.a[at:end]
		if o.b != nil {
			v.add(o.sum[at:end], row, o.b[at:end])
			row = o.sum[at:end]
		}
		mean := float32(0)
		if o.means != nil {
			mean = v.sum(row) / float32(o.width)
			o.means[i] = mean
		}
		variance := v.deviation(row, mean) / float32(o.width)
		o.rstds[i] = float32(1 / math.Sqrt(float64(variance+o.eps)))
		v.norm(o.out[at:end], row, o.w, o.bias, mean, o.rstds[i])
	}
}

// normBackward are the operands of an input gradient.
type normBackward struct {
	dx, dout, x, w, means, rstds []float32 // means is nil for the RMS norm
	residual                     []float32 // nil for none
	zeros                        []float32 // [width], for no residual
	width                        int
}

func (d *Device) layerNormBackwardInput(c kernels.Call) error {
	return d.normBackwardInput(c, normBackward{
		dx: floats(c.Args[0]), dout: floats(c.Args[1]), x: floats(c.Args[2]), w: floats(c.Args[3]),
		means: floats(c.Args[4]), rstds: floats(c.Args[5]), residual: floats(c.Args[6]),
	})
}

func (d *Device) rmsNormBackwardInput(c kernels.Call) error {
	return d.normBackwardInput(c, normBackward{
		dx: floats(c.Args[0]), dout: floats(c.Args[1]), x: floats(c.Args[2]), w: floats(c.Args[3]),
		rstds: floats(c.Args[4]), residual: floats(c.Args[5]),
	})
}

func (d *Device) normBackwardInput(c kernels.Call, o normBackward) (err error) {
	o.width = c.Dims[1]
	if o.zeros, err = d.zeros(o.width); err != nil {
		return err
	}
	d.rows(c.Dims[0], o.width, func(from, to int) { o.rows(d.v, from, to) })
	return nil
}

func (o *normBackward) rows(v *variant, from, to int) {
	var s [4]float32
	for i := from; i < to; i++ {
		at, end := i*o.width, (i+1)*o.width
		base, mean := o.zeros, float32(0)
		if o.residual != nil {
			base = o.residual[at:end]
		}
		if o.means != nil {
			mean = o.means[i]
		}
		plain, weighted := v.normSums(o.dout[at:end], o.x[at:end], o.w, mean, o.rstds[i])
		if o.means == nil {
			plain = 0
		}
		s = [4]float32{mean, o.rstds[i], plain / float32(o.width), weighted / float32(o.width)}
		v.normGrad(o.dx[at:end], base, o.dout[at:end], o.x[at:end], o.w, &s)
	}
}

// zeros is scratch of n zeros for the whole call.
func (d *Device) zeros(n int) ([]float32, error) {
	mem, err := d.pool.common(n)
	clear(mem)
	return mem, err
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

func (d *Device) rmsNormBackwardWeight(c kernels.Call) error {
	dw, dout, x, rstds := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2]), floats(c.Args[3])
	n, width := c.Dims[0], c.Dims[1]
	return d.columns(n, 2*width,
		func(part []float32, i int) {
			at, end := i*width, (i+1)*width
			d.v.normWeightGrad(part[:width], part[width:], dout[at:end], x[at:end], 0, rstds[i])
		},
		func(part []float32) { d.v.add(dw, dw, part[:width]) })
}
