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
	mr, nr := t.v.mr, t.v.nr
	args := &t.w.tile
	args.K, args.Init, args.CRow, args.Accumulate = p.k, &t.zero[0], p.cRow, 0
	if p.accumulate {
		args.Accumulate = 1
	}
	for i := 0; i < p.rows; i += mr {
		if p.guard && p.rows-i < mr {
			packColumns(t.edge, p.a[i*p.aRow:], p.aRow, mr, p.rows-i, p.k)
			args.A, args.ARow, args.ACol = &t.edge[0], 1, mr
		} else {
			args.A, args.ARow, args.ACol = &p.a[i*p.aRow], p.aRow, p.aCol
		}
		for j := 0; j < p.cols; j += nr {
			if p.lowerOnly && j >= i+mr {
				break
			}
			args.B, args.C = &p.panels[j*p.k], &p.c[i*p.cRow+j]
			t.v.multiply(args)
		}
	}
}
