package gpu

import "pnode/kernels"

// partRows is the number of rows that the first stage of a sum of columns adds up.
const partRows = 64

// squareGroups is the most work-groups of the first stage of a sum of squares.
const squareGroups = 1 << 10

// columnParts appends the first stage of a sum of columns of [rows,width].
func (p *Plan) columnParts(kernel string, rows, width int) *Launch {
	return p.launch(kernel, blocks(width, p.Geometry.Group()), blocks(rows, partRows))
}

// addParts appends the second stage: out[width] (+)= the parts in scratch from `first` on.
func (p *Plan) addParts(out kernels.View, first, parts, width, accumulate int) {
	p.launch("add_parts", blocks(width, p.Geometry.Group())).memory(out).scratch(first).ints(width, parts, accumulate)
}

func (p *Plan) columnSum(c kernels.Call) {
	rows, width, parts := c.Dims[0], c.Dims[1], blocks(c.Dims[0], partRows)
	p.ScratchFloats = parts * width
	p.columnParts("column_sum_parts", rows, width).scratch(0).memory(c.Args[1]).ints(rows, width, partRows)
	p.addParts(c.Args[0], 0, parts, width, flag(c, kernels.Accumulate))
}

func (p *Plan) sumSquares(c kernels.Call) {
	n := c.Dims[0]
	groups := min(squareGroups, blocks(n, p.Geometry.Group()))
	p.ScratchFloats = groups
	p.launch("sum_squares_parts", groups).scratch(0).memory(c.Args[1]).longs(uint64(n))
	p.launch("sum_parts", 1).memory(c.Args[0]).scratch(0).ints(groups)
}

// flag is 1 where the call has the flag.
func flag(c kernels.Call, f kernels.Flags) int {
	if c.Flags&f != 0 {
		return 1
	}
	return 0
}
