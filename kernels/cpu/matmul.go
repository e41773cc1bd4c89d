package cpu

import "pnode/kernels"

// A matrix product after Goto and van de Geijn (2008, "Anatomy of High-Performance
// Matrix Multiplication"). The workers first pack one operand into panels that all tasks
// share; then each task packs its part of the other one and runs the micro-kernel:
//
//   - a tall result: B is shared, a task is a block of rows, which the micro-kernel packs
//     beside its first products;
//   - a result of at most flatRows rows: A is shared, a task is a range of columns. A
//     panel of B is used once, straight from the worker's first cache. With few rows it is not
//     even packed: see direct.go.
//
// Order of the additions for one element, whatever its place and the block it is in:
// bias (or 0) plus the products of the first depth block in ascending order of K, plus
// the old value with Accumulate; then the sum of each following depth block. Depth blocks
// depend on K alone.
const (
	depthBlock = 384       // most K of most micro-kernels' calls: see microKernel.depth
	depthUnit  = tileRound // K of a depth block is a multiple, but for the last one's
	flatRows   = 144       // most rows of a result whose tasks are ranges of columns
	rowBlock   = 288       // most rows of a task of a tall result: see microKernel.block
	leastRows  = 72        // and least, if there are so many
	packLimit  = 1 << 19   // floats of B packed at one time, about: 2 MiB, a part of the third cache
	packWidth  = 1024      // least columns of B packed at one time, and a depth block of them
	packPanels = 8         // panels of a packing task
	taskSplit  = 4         // tasks for each worker, at least
)

// product is one matrix product on row-major memory.
type product struct {
	m, n, k    int     // k in pairs where the product is computed in those
	a, b       operand // positions are rows of A and columns of B
	c          stored
	bias       []float32 // nil for none
	accumulate bool
	micro      *microKernel
	direct     directProduct
	depth      int // K of all depth blocks but the last; multiply sets it
}

func (d *Device) matMul(c kernels.Call) error {
	return d.multiply(newProduct(d.v, c))
}

func (d *Device) multiply(p *product) error {
	p.depth = roundUp(blocks(p.k, blocks(p.k, p.micro.depth)), depthUnit)
	if err := d.pool.reserve(p.scratch()); err != nil {
		return err
	}
	if p.m <= flatRows {
		return d.multiplyFlat(p)
	}
	width, deep := p.packedAtATime(p.micro.nr)
	for left := 0; left < p.n; left += width {
		for depth := 0; depth < p.k; depth += deep {
			part := area{left: left, right: min(p.n, left+width), depth: depth, end: min(p.k, depth+deep)}
			if err := d.multiplyTall(p, part); err != nil {
				return err
			}
		}
	}
	return nil
}

func newProduct(v *variant, c kernels.Call) *product {
	p := &product{
		m: c.Dims[0], n: c.Dims[1], k: c.Dims[2], c: v.elements(c.Args[0]), bias: floats(c.Args[3]),
		accumulate: c.Flags&kernels.Accumulate != 0, micro: &v.product,
	}
	inPairs := v.pairs.multiply != nil && c.Args[1].Buf.DType() == kernels.BF16
	if inPairs {
		p.micro = &v.pairs
	}
	p.a = operand{unit: p.micro.mr, deep: c.Flags&kernels.TransA == 0, copy: v.copyA, transpose: v.transposeA, pair: v.pairA, arrange: p.micro.arrange}
	p.b = operand{unit: p.micro.nr, deep: c.Flags&kernels.TransB != 0, copy: p.micro.copyB, transpose: p.micro.transposeB, pair: p.micro.pairB, arrange: p.micro.arrange}
	p.a.bind(v, c.Args[1], p.m, p.k)
	p.b.bind(v, c.Args[2], p.n, p.k)
	if inPairs {
		p.a.bindPairs(p.k)
		p.b.bindPairs(p.k)
		p.k = blocks(p.k, 2)
	}
	p.bindDirect(c.Args[2])
	return p
}

// rows is how many a task has at most when the result is tall, whole tiles: as many as the second
// cache has room for beside the panel of B in use and the next one.
func (p *product) rows() int {
	rows := p.micro.block/min(p.depth, p.k) - 2*p.micro.nr
	return min(rowBlock, max(leastRows, rows)) / p.micro.mr * p.micro.mr
}

// packedAtATime is how many columns of B, and how much of their depth, the workers pack
// before they multiply: about packLimit floats. A task computes an element of a C of halves
// from the first product to the last, so there it is all of the depth.
func (p *product) packedAtATime(nr int) (columns, depth int) {
	least := packWidth
	if p.c.half != nil {
		least = packPanels * nr
	}
	columns = max(least, packLimit/p.k)
	if p.c.half != nil {
		columns = min(columns, packWidth)
	}
	columns = roundUp(blocks(p.n, blocks(p.n, columns)), nr)
	depth = max(1, packLimit/columns/p.depth) * p.depth
	if p.c.half != nil {
		depth = roundUp(p.k, p.depth)
	}
	return columns, depth
}

// area is a part of a shared operand: positions [left, right), rows [depth, end), where
// depth is the begin of a depth block.
type area struct{ left, right, depth, end int }

// multiplyTall adds the products with an area of B.
func (d *Device) multiplyTall(p *product, b area) error {
	shared, err := d.packShared(p, &p.b, b)
	if err != nil {
		return err
	}
	cut := cutInto(p.m, p.micro.mr, p.rows(), d.threads)
	d.pool.run(cut.tasks, func(w *worker, task int) {
		t := newRowTask(p, w)
		t.top, t.bottom = cut.part(task)
		t.left, t.right = b.left, b.right
		t.begin()
		for depth := b.depth; depth < b.end; depth += p.depth {
			k := min(p.depth, b.end-depth)
			beside := t.packOwn(depth, k)
			t.multiply(t.own, shared[(depth-b.depth)*roundUp(b.right-b.left, p.micro.nr):], depth, k, beside)
		}
		t.finish()
	})
	return nil
}

// multiplyFlat computes a product of at most flatRows rows.
func (d *Device) multiplyFlat(p *product) error {
	var shared []float32
	if p.packsA() {
		var err error
		if shared, err = d.packShared(p, &p.a, area{right: p.m, end: p.k}); err != nil {
			return err
		}
	}
	columns := p.micro.nr
	if p.direct.row != nil {
		columns = p.direct.columns
	}
	group := groupPanels * columns
	cut := cutInto(p.n, columns, packPanels*columns, d.threads)
	d.pool.run(cut.tasks, func(w *worker, task int) {
		t := newRowTask(p, w)
		t.top, t.bottom = 0, p.m
		from, to := cut.part(task)
		for t.left = from; t.left < to; t.left = t.right {
			t.right = min(to, t.left+group)
			t.begin()
			for depth := 0; depth < p.k; depth += p.depth {
				k, part := min(p.depth, p.k-depth), shared
				if shared != nil {
					part = shared[depth*roundUp(p.m, p.micro.mr):]
				}
				if p.direct.row != nil {
					t.multiplyDirect(part, depth, k)
					continue
				}
				p.b.pack(t.own, t.wide, t.left, t.right, depth, k)
				t.multiply(part, t.own, depth, k, false)
			}
			t.finish()
		}
	})
	return nil
}

// packShared packs an area of o for all tasks: the panels of one depth block after those
// of the other.
func (d *Device) packShared(p *product, o *operand, a area) ([]float32, error) {
	padded := roundUp(a.right-a.left, o.unit)
	packed, err := d.pool.common(padded * (a.end - a.depth))
	if err != nil {
		return nil, err
	}
	size := packPanels * o.unit
	parts := blocks(a.right-a.left, size)
	d.pool.run(blocks(a.end-a.depth, p.depth)*parts, func(w *worker, task int) {
		wide := w.scratch[:p.wideSize()]
		depth, first := a.depth+task/parts*p.depth, a.left+task%parts*size
		k := min(p.depth, a.end-depth)
		o.pack(packed[(depth-a.depth)*padded+(first-a.left)*k:], wide, first, min(a.right, first+size), depth, k)
	})
	return packed, nil
}

// cut divides the positions [0, n) into tasks at multiples of unit.
type cut struct{ n, unit, tasks int }

// cutInto makes as few tasks as have at most `most` positions each, but taskSplit for each
// thread where there are enough units, and the same number for each thread: all tasks are
// of about one size. The bits of the result do not depend on the cut.
func cutInto(n, unit, most, threads int) cut {
	units := blocks(n, unit)
	tasks := max(blocks(n, most/unit*unit), taskSplit*threads)
	return cut{n: n, unit: unit, tasks: min(units, roundUp(tasks, threads))}
}

// part is the range of a task. It has at most ceil(n/unit/tasks) units.
func (c cut) part(task int) (from, to int) {
	units := blocks(c.n, c.unit)
	return task * units / c.tasks * c.unit, min(c.n, (task+1)*units/c.tasks*c.unit)
}
