package cpu

import "pnode/kernels"

// A matrix product after Goto and van de Geijn (2008, "Anatomy of High-Performance
// Matrix Multiplication"). The workers first pack one operand into panels that all tasks
// share; then each task packs its part of the other one and runs the micro-kernel:
//
//   - a tall result: B is shared, a task is a block of rows;
//   - a result of at most rowBlock rows: A is shared, a task is a range of columns. A
//     panel of B is used once, straight from the worker's first cache.
//
// Order of the additions for one element, whatever its place and the block it is in:
// bias (or 0) plus the products of the first depth block in ascending order of K, plus
// the old value with Accumulate; then the sum of each following depth block. Depth blocks
// depend on K alone.
const (
	depthBlock = 384     // most K of one micro-kernel call: a panel is 24 KiB with nr = 16
	depthUnit  = 8       // K of a depth block is a multiple, but for the last one's
	rowBlock   = 144     // most rows of a task: 216 KiB of A, for the second cache
	packLimit  = 1 << 20 // floats of B packed at one time: 4 MiB, for the third cache
	packPanels = 8       // panels of a packing task
	taskSplit  = 4       // tasks for each worker, at least
)

// product is one matrix product on row-major memory.
type product struct {
	m, n, k    int
	a, b       operand // positions are rows of A and columns of B
	c          []float32
	bias       []float32 // nil for none
	accumulate bool
	depth      int // K of all depth blocks but the last
}

func (d *Device) matMul(c kernels.Call) error {
	v := d.v
	p := &product{
		m: c.Dims[0], n: c.Dims[1], k: c.Dims[2],
		c: floats(c.Args[0]), bias: floats(c.Args[3]),
		accumulate: c.Flags&kernels.Accumulate != 0,
	}
	p.a = operand{mem: floats(c.Args[1]), unit: v.mr, deep: c.Flags&kernels.TransA == 0, copy: v.copyA, transpose: v.transposeA}
	p.b = operand{mem: floats(c.Args[2]), unit: v.nr, deep: c.Flags&kernels.TransB != 0, copy: v.copyB, transpose: v.transposeB}
	p.a.setStride(p.m, p.k)
	p.b.setStride(p.n, p.k)
	p.depth = roundUp(blocks(p.k, blocks(p.k, depthBlock)), depthUnit)
	if err := d.pool.reserve(p.scratch(v)); err != nil {
		return err
	}
	if p.m <= rowBlock {
		return d.multiplyFlat(p)
	}
	width := max(v.nr, packLimit/p.k/v.nr*v.nr)
	for from := 0; from < p.n; from += width {
		if err := d.multiplyTall(p, from, min(p.n, from+width)); err != nil {
			return err
		}
	}
	return nil
}

// multiplyTall computes columns [from, to).
func (d *Device) multiplyTall(p *product, from, to int) error {
	shared, err := d.packShared(p, &p.b, from, to)
	if err != nil {
		return err
	}
	cut := cutInto(p.m, d.v.mr, rowBlock, d.threads)
	d.pool.run(cut.tasks, func(w *worker, task int) {
		t := newRowTask(p, d.v, w)
		t.top, t.bottom = cut.part(task)
		t.left, t.right = from, to
		for depth := 0; depth < p.k; depth += p.depth {
			k := min(p.depth, p.k-depth)
			p.a.pack(t.own, t.top, t.bottom, depth, k)
			t.multiply(t.own, shared[depth*roundUp(to-from, d.v.nr):], depth, k)
		}
	})
	return nil
}

// multiplyFlat computes a product of at most rowBlock rows.
func (d *Device) multiplyFlat(p *product) error {
	shared, err := d.packShared(p, &p.a, 0, p.m)
	if err != nil {
		return err
	}
	group := groupPanels * d.v.nr
	cut := cutInto(p.n, d.v.nr, packPanels*d.v.nr, d.threads)
	d.pool.run(cut.tasks, func(w *worker, task int) {
		t := newRowTask(p, d.v, w)
		t.top, t.bottom = 0, p.m
		from, to := cut.part(task)
		for depth := 0; depth < p.k; depth += p.depth {
			k := min(p.depth, p.k-depth)
			for t.left = from; t.left < to; t.left = t.right {
				t.right = min(to, t.left+group)
				p.b.pack(t.own, t.left, t.right, depth, k)
				t.multiply(shared[depth*roundUp(p.m, d.v.mr):], t.own, depth, k)
			}
		}
	})
	return nil
}

// packShared packs positions [from, to) of o for all tasks: the panels of one depth block
// after those of the other.
func (d *Device) packShared(p *product, o *operand, from, to int) ([]float32, error) {
	padded := roundUp(to-from, o.unit)
	packed, err := d.pool.common(padded * p.k)
	if err != nil {
		return nil, err
	}
	size := packPanels * o.unit
	parts := blocks(to-from, size)
	d.pool.run(blocks(p.k, p.depth)*parts, func(_ *worker, task int) {
		depth, first := task/parts*p.depth, task%parts*size
		k := min(p.depth, p.k-depth)
		o.pack(packed[depth*padded+first*k:], from+first, min(to, from+first+size), depth, k)
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
