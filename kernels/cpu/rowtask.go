package cpu

import "unsafe"

// rowTask computes C[top:bottom, left:right] of a product.
type rowTask struct {
	*product
	w                        *worker
	top, bottom, left, right int

	// out is where the sums go: C, or sums when C is stored as a half. Element (i,j) of C is
	// at (i-outTop)*outRow + j-outLeft.
	out                     []float32
	outRow, outTop, outLeft int

	scratch cutter
	zero    []float32 // [nr] zeros, or as many as a direct kernel has columns
	edge    []float32 // [rows,nr] for tiles that stick out of C
	start   []float32 // like zero: the bias of a last panel that sticks out
	own     []float32 // the operand that is not shared, [rows,K] or groupPanels panels
	wide    []float32 // for pack
	sums    []float32 // [rows,packWidth] of a C that is stored as a half
}

// scratch is the scratch in floats that a rowTask cuts up.
func (p *product) scratch() int {
	dry := rowTask{product: p, scratch: cutter{dry: true}}
	dry.cut()
	return dry.scratch.used
}

func newRowTask(p *product, w *worker) *rowTask {
	t := &w.task
	*t = rowTask{product: p, w: w, scratch: cutter{rest: w.scratch}}
	t.cut()
	clear(t.zero)
	return t
}

func (t *rowTask) cut() {
	rows := roundUp(max(flatRows, t.rows()), t.micro.mr) // of a task, whole tiles
	columns := max(t.micro.nr, t.direct.columns)
	t.zero, t.start = t.scratch.take(columns), t.scratch.take(columns)
	t.edge = t.scratch.take(rows * t.micro.nr)
	t.own = t.scratch.take(max(rows, groupPanels*t.micro.nr) * min(t.depth, t.k))
	t.wide = t.scratch.take(t.wideSize())
	if t.c.half != nil {
		t.sums = t.scratch.take(rows * roundUp(min(t.n, packWidth), groupPanels*t.micro.nr))
	}
}

// begin says where the sums of the task's part of C go, and with Accumulate fetches what
// is there.
func (t *rowTask) begin() {
	if t.c.half == nil {
		t.out, t.outRow = t.c.wide, t.n
		return
	}
	t.out, t.outRow, t.outTop, t.outLeft = t.sums, t.right-t.left, t.top, t.left
	for i := t.top; t.accumulate && i < t.bottom; i++ {
		t.c.widen(t.out[t.at(i, t.left):][:t.outRow], t.c.half[i*t.n+t.left:][:t.outRow])
	}
}

// finish rounds the sums of a C that is stored as a half.
func (t *rowTask) finish() {
	for i := t.top; t.c.half != nil && i < t.bottom; i++ {
		t.c.narrow(t.c.half[i*t.n+t.left:][:t.outRow], t.out[t.at(i, t.left):][:t.outRow])
	}
}

// at is the place of element (i,j) of C in out.
func (t *rowTask) at(i, j int) int { return (i-t.outTop)*t.outRow + j - t.outLeft }

// packOwn packs the task's rows of A. It leaves out whole tiles if the micro-kernel can pack them
// beside the products with the first panel of B, when that is a whole one: this hides the work and
// the wait for memory. Halves are copied first, as floats or pairs, so they are packed before.
func (t *rowTask) packOwn(depth, k int) (beside bool) {
	beside = t.micro.multiplyPack != nil && t.a.half == nil && t.right-t.left >= t.micro.nr
	packed := 0
	if beside {
		packed = t.wholeTiles() * t.micro.mr
	}
	t.a.pack(t.own[packed*k:], t.wide, t.top+packed, t.bottom, depth, k)
	return beside
}

func (t *rowTask) wholeTiles() int { return (t.bottom - t.top) / t.micro.mr }

// multiply adds the products of k rows of B from row depth on. The first call for some
// columns, with depth 0, sets what the following ones add to. With beside, the whole tiles of A
// are packed to a with the products of the first panel of B.
func (t *rowTask) multiply(a, b []float32, depth, k int, beside bool) {
	mr, nr := t.micro.mr, t.micro.nr
	whole := t.wholeTiles()
	args := &t.w.tile
	*args = tile{K: k, AStep: mr * k, NextStep: blocks(floatBytes*nr*tileRound, max(1, whole))}
	if depth > 0 || t.accumulate {
		args.Accumulate = 1
	}
	for j := t.left; j < t.right; j += nr {
		args.B, args.Init = &b[(j-t.left)*k], &t.init(j, depth)[0]
		args.Next = uintptr(unsafe.Pointer(args.B)) + uintptr(floatBytes*nr*k) // the next panel
		inside := whole
		if t.right-j < nr {
			inside = 0
		}
		if beside && j == t.left {
			t.multiplyAndPack(args, a, depth)
		} else if inside > 0 {
			args.A, args.ARow, args.ACol, args.Count = &a[0], 1, mr, inside
			args.C, args.CRow = &t.out[t.at(t.top, j)], t.outRow
			t.micro.multiply(args)
		}
		if from := t.top + inside*mr; from < t.bottom {
			args.A, args.ARow, args.ACol, args.Count = &a[inside*mr*k], 1, mr, blocks(t.bottom-from, mr)
			t.multiplyEdge(args, from, j)
		}
	}
}

// stepsAhead is how many steps of K before their use multiplyPack asks for elements of A, where a
// step goes to another row of memory.
const stepsAhead = 48

// multiplyAndPack computes the whole tiles of the first panel and packs their A.
func (t *rowTask) multiplyAndPack(args *tile, packed []float32, depth int) {
	mr, o, tiles := t.micro.mr, &t.a, t.wholeTiles()
	for i := range tiles {
		top := t.top + i*mr
		a := o.wide[o.at(top, depth) : o.at(top+mr-1, depth+args.K-1)+1]
		args.ARow, args.ACol, args.Ahead = o.stride, 1, 0
		switch {
		case !o.deep:
			args.ARow, args.ACol, args.Ahead = 1, o.stride, stepsAhead*o.stride
		case i < tiles-1: // the next tile
			args.Ahead = mr * o.stride
		case depth+args.K < t.k: // the first one of the next depth block
			args.Ahead = o.at(t.top, depth+args.K) - o.at(top, depth)
		}
		args.Ahead *= floatBytes
		args.A, args.Packed = &a[0], &packed[i*mr*args.K : (i+1)*mr*args.K][0]
		args.C, args.CRow = &t.out[t.at(top, t.left)], t.outRow
		t.micro.multiplyPack(args)
		args.Next += uintptr(args.K / tileRound * args.NextStep)
	}
}

// init returns the numbers from which the tiles of the panel at column j start.
func (t *rowTask) init(j, depth int) []float32 {
	switch {
	case depth > 0 || t.bias == nil:
		return t.zero
	case t.n-j < len(t.start):
		copy(t.start, t.bias[j:])
		return t.start
	default:
		return t.bias[j:]
	}
}

// multiplyEdge runs the micro-kernel on a copy of the tiles at (i,j) and below, so that
// rows and columns at the edge get the same bits as inside.
func (t *rowTask) multiplyEdge(args *tile, i, j int) {
	nr := t.micro.nr
	rows, cols := t.bottom-i, min(nr, t.right-j)
	if args.Accumulate != 0 {
		for r := range rows {
			copy(t.edge[r*nr:r*nr+cols], t.out[t.at(i+r, j):])
		}
	}
	args.C, args.CRow = &t.edge[0], nr
	if t.micro.few != nil && rows <= t.micro.fewRows {
		t.micro.few(args)
	} else {
		t.micro.multiply(args)
	}
	for r := range rows {
		copy(t.out[t.at(i+r, j):][:cols], t.edge[r*nr:])
	}
}
