package cpu

import "pnode/kernels"

// Products of few rows, as of tokens that are decoded, take as long as it takes to read B. Where its columns lie together in memory
// (TransB) they are read there, once, since to pack them would take longer than to use them. Each sum is that of the micro-kernel, to the bit.

const (
	directFew  = 4  // rows of a directKernels.few; mr is a multiple
	directRows = 8  // and of rows
	mostDirect = 16 // most rows of a product that reads B so
)

// directKernel computes out[i*nr+j] = init[j] + the sum of a[p*aStep+i]*b[j*stride+p] for its rows i, j < nr and p < k, in the order of
// microKernel.multiply. Elements of B may be pairs of BF16 numbers: with such of A, or with two floats that are aStep apart. One for int8
// weights has quant.PanelRows in place of nr, a panel from a block on in place of b, and how many of its weights to skip in place of stride.
type directKernel func(out, init, a, b *float32, aStep, stride, k int)

// directKernels are for one row, directFew and directRows; nil if there are none. A kernel of many rows exchanges rows and columns of B
// once for all of them.
type directKernels struct{ row, few, rows directKernel }

// of returns the kernel for so many rows that are left of a panel, and its rows.
func (d directKernels) of(left int) (directKernel, int) {
	switch {
	case left == 1:
		return d.row, 1
	case left <= directFew || d.rows == nil:
		return d.few, directFew
	default:
		return d.rows, directRows
	}
}

// bindDirect chooses the kernels that read B where it is, if that is possible.
func (p *product) bindDirect(b kernels.View) {
	if p.m > mostDirect || !p.b.deep || p.n < p.micro.nr {
		return
	}
	p.direct.step, p.direct.columns = 1, p.micro.nr
	switch {
	case p.b.half == nil:
		p.direct.directKernels, p.direct.b, p.direct.stride = p.micro.direct, p.b.wide, p.b.stride
	case b.Buf.DType() == kernels.BF16 && p.k%2 == 0 && p.micro.directHalves.row != nil:
		p.direct.directKernels, p.direct.b, p.direct.stride, p.direct.step = p.micro.directHalves, asPairs(p.b.half), p.b.stride/2, 2
	}
}

// directProduct is a product's B for direct kernels.
type directProduct struct {
	directKernels
	b      []float32
	stride int
	step   int // elements of K in one of B
	// columns is nr, or with int8 weights the rows of their panels.
	columns int
}

// from returns what a direct kernel reads for columns from j on, elements of K from depth on, and its first column: the last ones are
// together with some of before, but those of int8 weights, which are filled up.
func (p *product) from(j, depth int) (b *float32, stride, first int) {
	if p.b.int8 != nil {
		b, stride = p.b.int8.at(j, depth)
		return b, stride, j
	}
	first = min(j, p.n-p.micro.nr)
	return &p.direct.b[first*p.direct.stride+depth/p.direct.step], p.direct.stride, first
}

// packsA reports whether rows of A are packed for a product of at most flatRows rows. One alone is read where it is.
func (p *product) packsA() bool { return p.direct.row == nil || p.m > 1 || p.a.half != nil }

// multiplyDirect is multiply of all rows with the task's columns of B where they lie. A is the packed rows, if they are.
func (t *rowTask) multiplyDirect(a []float32, depth, k int) {
	mr, nr := t.micro.mr, t.direct.columns
	for j := t.left; j < t.right; j += nr {
		b, stride, first := t.from(j, depth)
		init := t.init(first, depth)
		for i := 0; i < t.m; {
			multiply, rows := t.direct.of(min(t.m, i/mr*mr+mr) - i)
			if a == nil {
				multiply(&t.edge[0], &init[0], &t.a.wide[depth], b, 1, stride, k/t.direct.step)
			} else {
				multiply(&t.edge[0], &init[0], &a[i/mr*mr*k+i%mr], b, mr, stride, k/t.direct.step)
			}
			for r := range min(rows, t.m-i) {
				t.addSums(t.out[t.at(i+r, j):][:min(nr, t.right-j)], t.edge[r*nr+j-first:], depth)
			}
			i += rows
		}
	}
}

// addSums adds sums of a depth block to those of the blocks before, and to what Accumulate finds.
func (t *rowTask) addSums(out, sums []float32, depth int) {
	if depth == 0 && !t.accumulate {
		copy(out, sums)
		return
	}
	for i, sum := range sums[:len(out)] {
		out[i] += sum
	}
}
