package cpu

import (
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// Products with int8 weights are those with the float32 numbers that the weights stand for, to the bit. Few rows take these from the bytes in
// registers, in the order of the micro-kernel; for more rows, panels are widened where others are packed.

// matMulInt8 computes kernels.OpMatMulInt8.
func (d *Device) matMulInt8(c kernels.Call) error {
	p := &product{
		m: c.Dims[0], n: c.Dims[1], k: c.Dims[2], a: operand{unit: d.v.product.mr, deep: true, copy: d.v.copyA, transpose: d.v.transposeA},
		b: operand{unit: d.v.product.nr, copy: d.v.product.copyB}, c: d.v.elements(c.Args[0]), bias: floats(c.Args[3]), micro: &d.v.product,
	}
	p.a.bind(d.v, c.Args[1], p.m, p.k)
	p.b.bind(d.v, kernels.View{}, p.n, p.k)
	p.b.int8 = &int8Matrix{words: floats(c.Args[2]), panel: quant.PanelBytes(p.k) / floatBytes, widen: d.v.widenInt8}
	if p.m <= mostDirect {
		p.direct = directProduct{directKernels: p.micro.directInt8, step: 1, columns: quant.PanelRows}
	}
	return d.multiply(p)
}

// int8Matrix are int8 weights in memory.
type int8Matrix struct {
	words []float32
	panel int // words of a panel
	widen int8Widen
}

// int8Widen writes out[p*step+j] = weight skip+p of row j of a panel, for j < quant.PanelRows and p < k. The panel begins with a block, in
// which the weights skipped are.
type int8Widen func(out, panel *float32, step, skip, k int)

// at is where the block of a row's panel begins that has a column, and how far behind its first column that is.
func (m *int8Matrix) at(row, col int) (block *float32, skip int) {
	return &m.words[row/quant.PanelRows*m.panel+quant.BlockAt(col)/floatBytes], col % quant.MatrixGroup
}

// packInt8 is pack of int8 weights.
func (o *operand) packInt8(dst, wide []float32, from, to, depth, k int) {
	group := *o
	group.int8 = nil
	for next := from; from < to; from = next {
		next = min(to, from+o.group)
		first := from / quant.PanelRows * quant.PanelRows
		group.stride = roundUp(next-first, quant.PanelRows)
		for j := first; j < next; j += quant.PanelRows {
			panel, skip := o.int8.at(j, depth)
			o.int8.widen(&wide[j-first], panel, group.stride, skip, k)
		}
		group.wide = wide[from-first:]
		group.packFloats(dst, 0, next-from, 0, k)
		dst = dst[roundUp(next-from, o.unit)*k:]
	}
}

// int8Wide is how many columns more packInt8 widens than it packs at most.
const int8Wide = 2 * quant.PanelRows

func widenInt8Generic(out, panel *float32, step, skip, k int) {
	dst := unsafe.Slice(out, (k-1)*step+quant.PanelRows)
	for p := 0; p < k; {
		n := min(k-p, quant.MatrixGroup-skip)
		scales := (*[quant.PanelRows]float32)(unsafe.Pointer(panel))
		numbers := unsafe.Slice((*int8)(unsafe.Add(unsafe.Pointer(panel), quant.PanelRows*quant.ScaleBytes)), (skip+n)*quant.PanelRows)
		for i := range n {
			row, from := (*[quant.PanelRows]float32)(dst[(p+i)*step:]), (*[quant.PanelRows]int8)(numbers[(skip+i)*quant.PanelRows:])
			for j := range row {
				row[j] = float32(from[j]) * scales[j]
			}
		}
		p, skip = p+n, 0
		if p < k {
			panel = (*float32)(unsafe.Add(unsafe.Pointer(panel), quant.PanelRows*(quant.ScaleBytes+quant.MatrixGroup)))
		}
	}
}

// embedInt8 computes kernels.OpEmbedInt8.
func (d *Device) embedInt8(c kernels.Call) error {
	words := hostBytes(c.Args[2])
	return d.embed(c, func(row []float32, token int) { quant.UnpackRow(row, words, token) })
}
