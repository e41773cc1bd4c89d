package cpu

import "pnode/kernels"

// A matrix product after Goto and van de Geijn (2008, "Anatomy of High-Performance
// Matrix Multiplication"): B is packed once, in panels of nr columns, by all workers;
// then each task multiplies a block of rows by a group of panels with the micro-kernel.
//
// Order of the additions for one element, whatever its place and the block it is in:
// bias (or 0) plus the first depthBlock products in ascending order of K, plus the old
// value with Accumulate; then the sum of each following depthBlock products.
const (
	depthBlock = 256     // K of one micro-kernel call: a panel is 16 KiB with nr = 16
	rowBlock   = 96      // most rows of a task: 96 KiB of A
	groupWidth = 512     // most columns of a task
	packWidth  = 128     // columns of a packing task, and the least of any; a multiple of every nr
	packLimit  = 1 << 23 // floats of B packed at one time
)

// product is one matrix product on row-major memory.
type product struct {
	m, n, k    int
	a, b, c    []float32
	bias       []float32 // nil for none
	aT, bT     bool
	accumulate bool
	lda, ldb   int
}

func (d *Device) matMul(c kernels.Call) error {
	p := product{
		m: c.Dims[0], n: c.Dims[1], k: c.Dims[2],
		c: floats(c.Args[0]), a: floats(c.Args[1]), b: floats(c.Args[2]), bias: floats(c.Args[3]),
		aT: c.Flags&kernels.TransA != 0, bT: c.Flags&kernels.TransB != 0,
		accumulate: c.Flags&kernels.Accumulate != 0,
	}
	p.lda, p.ldb = p.k, p.n
	if p.aT {
		p.lda = p.m
	}
	if p.bT {
		p.ldb = p.k
	}
	width := max(groupWidth, packLimit/p.k/groupWidth*groupWidth)
	for from := 0; from < p.n; from += width {
		if err := d.multiplyColumns(&p, from, min(p.n, from+width)); err != nil {
			return err
		}
	}
	return nil
}

// multiplyColumns computes columns [from, to) of the product.
func (d *Device) multiplyColumns(p *product, from, to int) error {
	v := d.v
	padded := roundUp(to-from, v.nr)
	packed, err := d.pool.common(padded * p.k)
	if err != nil {
		return err
	}
	if err := d.pool.reserve(rowScratch(v)); err != nil {
		return err
	}
	depths, parts := blocks(p.k, depthBlock), blocks(to-from, packWidth)
	d.pool.run(depths*parts, func(_ *worker, task int) {
		depth, left := task/parts*depthBlock, from+task%parts*packWidth
		k := min(depthBlock, p.k-depth)
		r := panelRange{from: left, to: min(to, left+packWidth), depth: depth, k: k}
		v.packPanels(packed[depth*padded+(left-from)*k:], p, r)
	})
	rows, cols := taskSize(p.m, to-from, d.threads)
	groups := blocks(to-from, cols)
	d.pool.run(blocks(p.m, rows)*groups, func(w *worker, task int) {
		t := rowTask{product: p, v: v, w: w, top: task / groups * rows, left: from + task%groups*cols}
		t.bottom, t.right = min(p.m, t.top+rows), min(to, t.left+cols)
		t.prepare()
		for depth := 0; depth < p.k; depth += depthBlock {
			k := min(depthBlock, p.k-depth)
			t.multiply(packed[depth*padded+(t.left-from)*k:], depth, k)
		}
	})
	return nil
}

// taskSize cuts an [m,n] result into tasks, at least four for each worker where the
// result is large enough. The bits of the result do not depend on the cut.
func taskSize(m, n, threads int) (rows, cols int) {
	rows, cols = rowBlock, groupWidth
	for blocks(m, rows)*blocks(n, cols) < 4*threads {
		switch {
		case cols > packWidth:
			cols /= 2
		case rows > rowBlock/4: // 24 rows: still a multiple of every mr
			rows /= 2
		default:
			return rows, cols
		}
	}
	return rows, cols
}

// panelRange is a part of B: columns [from, to), k rows from row depth on.
type panelRange struct{ from, to, depth, k int }

// packPanels writes panels of nr columns, [k,nr] each, the last one padded with zeros.
func (v *variant) packPanels(dst []float32, p *product, r panelRange) {
	for j := r.from; j < r.to; j += v.nr {
		panel := dst[(j-r.from)*r.k:][:r.k*v.nr]
		cols := min(v.nr, r.to-j)
		if p.bT {
			v.packTransposed(panel, p.b[j*p.ldb+r.depth:], p.ldb, cols, r.k)
		} else {
			v.packRows(panel, p.b[r.depth*p.ldb+j:], p.ldb, cols, r.k)
		}
	}
}

// packRows writes dst[p*nr+j] = src[p*stride+j] for j < cols, else 0.
func (v *variant) packRows(dst, src []float32, stride, cols, k int) {
	if cols == v.nr {
		v.copyB(dst, src, stride, k)
		return
	}
	packEdge(dst, src, stride, v.nr, cols, k)
}

// packEdge writes dst[p*unit+j] = src[p*stride+j] for j < cols, else 0.
func packEdge(dst, src []float32, stride, unit, cols, k int) {
	for p := range k {
		row := dst[p*unit : (p+1)*unit]
		copy(row, src[p*stride:p*stride+cols])
		clear(row[cols:])
	}
}

// packTransposed writes dst[p*nr+j] = src[j*stride+p] for j < cols, else 0.
func (v *variant) packTransposed(dst, src []float32, stride, cols, k int) {
	if cols == v.nr {
		v.transpose(dst, src, stride, k)
		return
	}
	packColumns(dst, src, stride, v.nr, cols, k)
}

// packColumns writes dst[p*unit+j] = src[j*stride+p] for j < cols, else 0.
func packColumns(dst, src []float32, stride, unit, cols, k int) {
	for p := range k {
		row := dst[p*unit : (p+1)*unit]
		for j := range cols {
			row[j] = src[j*stride+p]
		}
		clear(row[cols:])
	}
}
