package cpu

import (
	"math"

	"pnode/kernels"
)

func (d *Device) crossEntropy(c kernels.Call) error {
	losses, logits, targets := floats(c.Args[0]), floats(c.Args[1]), ints(c.Args[2])
	n, vocab, scale := c.Dims[0], c.Dims[1], c.Scalars[0]
	if err := checkIndices("targets", targets, math.MinInt32, vocab); err != nil {
		return err
	}
	d.rows(n, vocab, func(from, to int) {
		for i := from; i < to; i++ {
			row := logits[i*vocab : (i+1)*vocab]
			t := int(targets[i])
			if t < 0 {
				losses[i] = 0
				clear(row)
				continue
			}
			top := d.v.max(row)
			gap := top - row[t]
			sum := d.v.powers(row, row, math.Log2E, top)
			losses[i] = float32(math.Log(float64(sum)) + float64(gap))
			d.v.scale(row, scale/sum)
			row[t] -= scale
		}
	})
	return nil
}
