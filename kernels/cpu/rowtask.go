package cpu

// rowTask computes C[top:bottom, left:right] of a product.
type rowTask struct {
	*product
	v                        *variant
	w                        *worker
	top, bottom, left, right int

	scratch cutter
	zero    []float32 // [nr] zeros
	edge    []float32 // [rowBlock,nr] for tiles that stick out of C
	start   []float32 // [nr] the bias of a last panel that sticks out
	own     []float32 // the operand that is not shared, [rowBlock,K] or groupPanels panels
}

// scratch is the scratch in floats that a rowTask cuts up.
func (p *product) scratch(v *variant) int {
	return 2*scratchSize(v.nr) + scratchSize(edgeRows(v)*v.nr) + scratchSize(p.ownSize(v))
}

// edgeRows is the most rows of a task, whole tiles.
func edgeRows(v *variant) int { return roundUp(rowBlock, v.mr) }

func (p *product) ownSize(v *variant) int {
	return max(edgeRows(v), groupPanels*v.nr) * min(p.depth, p.k)
}

func newRowTask(p *product, v *variant, w *worker) *rowTask {
	t := &w.task
	*t = rowTask{product: p, v: v, w: w, scratch: cutter{rest: w.scratch}}
	t.zero, t.start = t.scratch.take(v.nr), t.scratch.take(v.nr)
	t.edge = t.scratch.take(edgeRows(v) * v.nr)
	t.own = t.scratch.take(p.ownSize(v))
	clear(t.zero)
	return t
}

// multiply adds the products of k rows of B from row depth on. The first call for some
// columns, with depth 0, sets what the following ones add to.
func (t *rowTask) multiply(a, b []float32, depth, k int) {
	mr, nr := t.v.mr, t.v.nr
	whole := (t.bottom - t.top) / mr
	args := &t.w.tile
	*args = tile{K: k, ARow: 1, ACol: mr, AStep: mr * k}
	if depth > 0 || t.accumulate {
		args.Accumulate = 1
	}
	for j := t.left; j < t.right; j += nr {
		args.B, args.Init = &b[(j-t.left)*k], &t.init(j, depth)[0]
		inside := whole
		if t.right-j < nr {
			inside = 0
		}
		if inside > 0 {
			args.A, args.Count = &a[0], inside
			args.C, args.CRow = &t.c[t.top*t.n+j], t.n
			t.v.multiply(args)
		}
		if from := t.top + inside*mr; from < t.bottom {
			args.A, args.Count = &a[inside*mr*k], blocks(t.bottom-from, mr)
			t.multiplyEdge(args, from, j)
		}
	}
}

// init is what the tiles of the panel at column j start from.
func (t *rowTask) init(j, depth int) []float32 {
	switch {
	case depth > 0 || t.bias == nil:
		return t.zero
	case t.right-j < t.v.nr:
		copy(t.start, t.bias[j:t.right])
		return t.start
	default:
		return t.bias[j:]
	}
}

// multiplyEdge runs the micro-kernel on a copy of the tiles at (i,j) and below, so that
// rows and columns at the edge get the same bits as inside.
func (t *rowTask) multiplyEdge(args *tile, i, j int) {
	nr := t.v.nr
	rows, cols := t.bottom-i, min(nr, t.right-j)
	if args.Accumulate != 0 {
		for r := range rows {
			copy(t.edge[r*nr:r*nr+cols], t.c[(i+r)*t.n+j:])
		}
	}
	args.C, args.CRow = &t.edge[0], nr
	t.v.multiply(args)
	for r := range rows {
		copy(t.c[(i+r)*t.n+j:(i+r)*t.n+j+cols], t.edge[r*nr:])
	}
}
