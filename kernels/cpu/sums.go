package cpu

import "pnode/kernels"

// sumRows is the number of rows that the first stage of a column sum adds up. The
// partial sums of [rows/sumRows, width] are then added in order.
const sumRows = 64

// columns sums in two stages: add(part, row) adds what row contributes to part[width];
// the total is added to the zeroed or accumulating outputs by finish.
func (d *Device) columns(rows, width int, add func(part []float32, row int), finish func(part []float32)) error {
	parts := blocks(rows, sumRows)
	partial, err := d.pool.common(parts * width)
	if err != nil {
		return err
	}
	d.pool.run(parts, func(_ *worker, task int) {
		part := partial[task*width : (task+1)*width]
		clear(part)
		for row := task * sumRows; row < min(rows, (task+1)*sumRows); row++ {
			add(part, row)
		}
	})
	for p := range parts {
		finish(partial[p*width : (p+1)*width])
	}
	return nil
}

func (d *Device) columnSum(c kernels.Call) error {
	out, in := floats(c.Args[0]), floats(c.Args[1])
	n, width := c.Dims[0], c.Dims[1]
	if c.Flags&kernels.Accumulate == 0 {
		clear(out)
	}
	return d.columns(n, width,
		func(part []float32, row int) { d.v.add(part, part, in[row*width:(row+1)*width]) },
		func(part []float32) { d.v.add(out, out, part) })
}

// sumSquares adds up in float64: one sum for each range of grain elements, then these in
// order.
func (d *Device) sumSquares(c kernels.Call) error {
	out, x := floats(c.Args[0]), floats(c.Args[1])
	sums := make([]float64, blocks(len(x), grain))
	d.ranges(len(x), func(from, to int) { sums[from/grain] = d.v.sumSquares(x[from:to]) })
	total := 0.0
	for _, s := range sums {
		total += s
	}
	out[0] = float32(total)
	return nil
}
