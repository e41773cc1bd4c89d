package cpu

import (
	"math"

	"pnode/kernels"
)

// The RMS norm is the layer norm with mean and bias zero, so one set of loops serves both.

// normOperands is the memory of kernels.NormOperands, nil for absent ones.
func normOperands(c kernels.Call) (x [8][]float32) {
	operands, _ := kernels.NormOperands(c)
	for i, v := range operands {
		x[i] = floats(v)
	}
	return x
}

// normForward are the operands of a forward norm of x = a + b, kept in sum, or of x = a
// where b is nil.
type normForward struct {
	out, sum, means, rstds []float32 // means is nil for the RMS norm
	a, b                   []float32
	w, bias                []float32
	width                  int
	eps                    float32
}

func (d *Device) normForward(c kernels.Call) (err error) {
	x := normOperands(c)
	o := normForward{x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7], c.Dims[1], c.Scalars[0]}
	if o.bias == nil {
		if o.bias, err = d.zeros(o.width); err != nil {
			return err
		}
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

func (d *Device) normBackwardInput(c kernels.Call) error {
	zeros, err := d.zeros(c.Dims[1])
	if err != nil {
		return err
	}
	x := normOperands(c)
	o := normBackward{x[0], x[1], x[2], x[3], x[4], x[5], x[6], zeros, c.Dims[1]}
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

func (d *Device) normBackwardWeight(c kernels.Call) error {
	x, n, width := normOperands(c), c.Dims[0], c.Dims[1]
	dw, db, dout, in, means, rstds := x[0], x[1], x[2], x[3], x[4], x[5]
	return d.columns(n, 2*width,
		func(part []float32, i int) {
			at, end, mean := i*width, (i+1)*width, float32(0)
			if means != nil {
				mean = means[i]
			}
			d.v.normWeightGrad(part[:width], part[width:], dout[at:end], in[at:end], mean, rstds[i])
		},
		func(part []float32) {
			d.v.add(dw, dw, part[:width])
			if db != nil {
				d.v.add(db, db, part[width:])
			}
		})
}
