package cpu

// tiler multiplies small matrices inside a task with the micro-kernel.
type tiler struct {
	v       *variant
	w       *worker
	scratch cutter
	zero    []float32 // [nr] zeros
	edge    []float32 // [maxK,mr]: the last rows of A
}

func tilerScratch(v *variant, maxK int) int { return scratchSize(v.nr) + scratchSize(maxK*v.mr) }

func (t *tiler) prepare(maxK int) {
	t.zero, t.edge = t.scratch.take(t.v.nr), t.scratch.take(maxK*t.v.mr)
	clear(t.zero)
}

// tileProduct is c[rows,cols] (+)= a[rows,k] * B[k,cols], B in panels of nr columns. c
// has room for whole tiles: roundUp(rows, mr) rows of roundUp(cols, nr) columns.
type tileProduct struct {
	rows, cols, k int
	a             []float32
	aRow, aCol    int
	guard         bool // a ends with the last row: copy the rows of the last tile
	panels        []float32
	c             []float32
	cRow          int
	accumulate    bool
	lowerOnly     bool // leave out tiles above the diagonal
}

func (t *tiler) product(p tileProduct) {
	mr := t.v.mr
	inside := blocks(p.rows, mr)
	if p.guard {
		inside = p.rows / mr
	}
	args := &t.w.tile
	*args = tile{K: p.k, Init: &t.zero[0], CRow: p.cRow}
	if p.accumulate {
		args.Accumulate = 1
	}
	t.multiply(args, &p, 0, inside)
	if last := inside * mr; last < p.rows {
		packColumns(t.edge, p.a[last*p.aRow:], p.aRow, mr, p.rows-last, p.k)
		t.multiply(args, &p, inside, 1)
	}
}

// multiply runs tiles [first, first+count) of each panel; those that guard keeps out of A
// are in edge.
func (t *tiler) multiply(args *tile, p *tileProduct, first, count int) {
	mr, nr := t.v.mr, t.v.nr
	for j := 0; j < p.cols; j += nr {
		from := first
		if p.lowerOnly {
			from = max(first, j/mr)
		}
		if args.Count = first + count - from; args.Count <= 0 {
			continue
		}
		args.B, args.C = &p.panels[j*p.k], &p.c[from*mr*p.cRow+j]
		args.A, args.ARow, args.ACol, args.AStep = &p.a[from*mr*p.aRow], p.aRow, p.aCol, mr*p.aRow
		if p.guard && from*mr+mr > p.rows {
			args.A, args.ARow, args.ACol = &t.edge[0], 1, mr
		}
		t.v.multiply(args)
	}
}
