package cpu

// rowTask computes C[top:bottom, left:right] of a product.
type rowTask struct {
	*product
	v                        *variant
	w                        *worker
	top, bottom, left, right int

	scratch cutter
	zero    []float32 // [nr] zeros
	edge    []float32 // [mr,nr] for tiles that stick out of C
	bias    []float32 // [nr] for a last panel that sticks out
	packedA []float32 // [rowBlock,depthBlock]
}

// rowScratch is the scratch in floats that a rowTask cuts up.
func rowScratch(v *variant) int {
	return 2*scratchSize(v.nr) + scratchSize(v.mr*v.nr) + scratchSize(roundUp(rowBlock, v.mr)*depthBlock)
}

func (t *rowTask) prepare() {
	t.scratch.rest = t.w.scratch
	t.zero, t.bias = t.scratch.take(t.v.nr), t.scratch.take(t.v.nr)
	t.edge = t.scratch.take(t.v.mr * t.v.nr)
	t.packedA = t.scratch.take(roundUp(rowBlock, t.v.mr) * depthBlock)
	clear(t.zero)
	clear(t.bias)
	if t.product.bias != nil {
		copy(t.bias, t.product.bias[(t.right-1-t.left)/t.v.nr*t.v.nr+t.left:t.right])
	}
}

// multiply adds the products of k rows of B, packed in panels, from row depth on. The
// first call, with depth 0, sets what the following ones add to.
func (t *rowTask) multiply(panels []float32, depth, k int) {
	t.packA(depth, k)
	args := &t.w.tile
	args.K = k
	for j := t.left; j < t.right; j += t.v.nr {
		args.B = &panels[(j-t.left)*k]
		args.Init = &t.init(j, depth)[0]
		for i := t.top; i < t.bottom; i += t.v.mr {
			t.locateA(args, i, depth, k)
			args.Accumulate = 0
			if depth > 0 || t.accumulate {
				args.Accumulate = 1
			}
			if t.bottom-i < t.v.mr || t.right-j < t.v.nr {
				t.multiplyEdge(args, i, j)
				continue
			}
			args.C, args.CRow = &t.c[i*t.n+j], t.n
			t.v.multiply(args)
		}
	}
}

// init is what the tiles of the panel at column j start from.
func (t *rowTask) init(j, depth int) []float32 {
	switch {
	case depth > 0 || t.product.bias == nil:
		return t.zero
	case t.right-j < t.v.nr:
		return t.bias
	default:
		return t.product.bias[j:]
	}
}

// packA packs what the micro-kernel cannot read in place: all rows of a transposed A,
// else the last rows when they do not fill a tile.
func (t *rowTask) packA(depth, k int) {
	mr := t.v.mr
	for i := t.top; i < t.bottom; i += mr {
		rows := min(mr, t.bottom-i)
		panel := t.packedA[(i-t.top)*k:][:mr*k]
		switch {
		case t.aT && rows == mr:
			t.v.copyA(panel, t.a[depth*t.lda+i:], t.lda, k)
		case t.aT:
			packEdge(panel, t.a[depth*t.lda+i:], t.lda, mr, rows, k)
		case rows < mr:
			packColumns(panel, t.a[i*t.lda+depth:], t.lda, mr, rows, k)
		}
	}
}

func (t *rowTask) locateA(args *tile, i, depth, k int) {
	if t.aT || t.bottom-i < t.v.mr {
		args.A, args.ARow, args.ACol = &t.packedA[(i-t.top)*k], 1, t.v.mr
		return
	}
	args.A, args.ARow, args.ACol = &t.a[i*t.lda+depth], t.lda, 1
}

// multiplyEdge runs the micro-kernel on a copy of the tile, so that rows and columns at
// the edge get the same bits as inside.
func (t *rowTask) multiplyEdge(args *tile, i, j int) {
	nr := t.v.nr
	rows, cols := min(t.v.mr, t.bottom-i), min(nr, t.right-j)
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
