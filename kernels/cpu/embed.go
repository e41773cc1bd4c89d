package cpu

import (
	"fmt"

	"pnode/kernels"
)

// checkIndices refuses values outside [low, high).
func checkIndices(name string, x []int32, low, high int) error {
	for i, t := range x {
		if int(t) < low || int(t) >= high {
			return fmt.Errorf("%w: %s[%d] is %d, want [%d, %d)", kernels.ErrBadCall, name, i, t, low, high)
		}
	}
	return nil
}

func (d *Device) embedForward(c kernels.Call) error {
	wte := d.v.elements(c.Args[2])
	return d.embed(c, func(row []float32, token int) {
		if from := wte.from(token * len(row)); from.half != nil {
			from.widen(row, from.half[:len(row)])
		} else {
			copy(row, from.wide)
		}
	})
}

// embed fills the rows of a call's tokens and adds their positions.
func (d *Device) embed(c kernels.Call, fill func(row []float32, token int)) error {
	out, tokens, wpe := floats(c.Args[0]), ints(c.Args[1]), floats(c.Args[3])
	positions, width, vocab := c.Dims[1], c.Dims[2], c.Dims[3]
	if err := checkIndices("tokens", tokens, 0, vocab); err != nil {
		return err
	}
	d.rows(len(tokens), width, func(from, to int) {
		for i := from; i < to; i++ {
			row := out[i*width : (i+1)*width]
			fill(row, int(tokens[i]))
			if wpe != nil {
				pos := i % positions * width
				d.v.add(row, row, wpe[pos:pos+width])
			}
		}
	})
	return nil
}

// embedColumns is the width of a task of embedBackward: each task adds all rows, in
// ascending order, to its own columns.
const embedColumns = 64

func (d *Device) embedBackward(c kernels.Call) error {
	dwte, dwpe, dout, tokens := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2]), ints(c.Args[3])
	positions, width, vocab := c.Dims[1], c.Dims[2], c.Dims[3]
	if err := checkIndices("tokens", tokens, 0, vocab); err != nil {
		return err
	}
	d.pool.run(blocks(width, embedColumns), func(_ *worker, task int) {
		from, to := task*embedColumns, min(width, (task+1)*embedColumns)
		for i, token := range tokens {
			grad := dout[i*width+from : i*width+to]
			row := dwte[int(token)*width+from : int(token)*width+to]
			d.v.add(row, row, grad)
			if dwpe != nil {
				pos := i % positions * width
				row = dwpe[pos+from : pos+to]
				d.v.add(row, row, grad)
			}
		}
	})
	return nil
}
