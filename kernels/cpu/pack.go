package cpu

import "pnode/kernels"

// operand is A or B of a product. A position is a row of A or a column of B; a panel holds
// `unit` positions as the micro-kernel reads them: [K,unit].
type operand struct {
	stored
	stride    int
	deep      bool // element (position j, depth p) is at j*stride+p, else at p*stride+j
	unit      int
	group     int // positions that are packed at one time when stored as a half, whole panels
	copy      packCopy
	transpose packTranspose
	arrange   func(panels []float32, unit, k int) // nil for nothing

	// Of BF16 numbers whose pairs lie apart in memory:
	apart bool
	pair  packPairs
	depth int // K

	int8 *int8Matrix // of int8 weights, which are positions by row; nil else
}

// groupPanels is how many panels copyA and copyB write side by side at least when they can, so
// that a visit to a row takes as much from it as possible.
const groupPanels = 4

// bind sets the operand's memory.
func (o *operand) bind(v *variant, view kernels.View, positions, depth int) {
	o.group = groupPanels * max(v.product.mr, v.product.nr) / o.unit * o.unit
	o.stride = positions
	if o.deep {
		o.stride = depth
	}
	o.stored = v.elements(view)
}

// at is the place of element (position j, depth p).
func (o *operand) at(j, p int) int {
	if o.deep {
		return j*o.stride + p
	}
	return p*o.stride + j
}

// wideSize is the scratch in floats that pack needs for a group of an operand of halves or int8 weights.
func (p *product) wideSize() int {
	if !p.a.copied() && !p.b.copied() {
		return 0
	}
	columns := groupPanels * max(p.micro.mr, p.micro.nr)
	if p.b.int8 != nil {
		columns += int8Wide
	}
	return columns * min(p.depth, p.k)
}

// copied reports whether pack makes a copy before it packs.
func (o *operand) copied() bool { return o.int8 != nil || o.half != nil && (o.deep || !o.apart) }

// pack writes panels of positions [from, to), rows [depth, depth+k), one after the other.
// The last one is padded with zeros. Halves go through the scratch wide.
func (o *operand) pack(dst, wide []float32, from, to, depth, k int) {
	o.packInOrder(dst, wide, from, to, depth, k)
	if o.arrange != nil {
		o.arrange(dst[:roundUp(to-from, o.unit)*k], o.unit, k)
	}
}

// packInOrder is pack before panels are arranged.
func (o *operand) packInOrder(dst, wide []float32, from, to, depth, k int) {
	switch {
	case o.int8 != nil:
		o.packInt8(dst, wide, from, to, depth, k)
		return
	case o.half == nil:
		o.packFloats(dst, from, to, depth, k)
		return
	case o.apart:
		o.packHalves(dst, wide, from, to, depth, k)
		return
	}
	group := *o
	group.stored = stored{wide: wide}
	for next := from; from < to; from = next {
		next = min(to, from+o.group)
		group.stride = o.widened(wide, from, next, depth, k)
		group.packFloats(dst, 0, next-from, 0, k)
		dst = dst[roundUp(next-from, o.unit)*k:]
	}
}

// widened copies positions [from, to), rows [depth, depth+k), as float32 and gives the
// stride of the copy, which is laid out like the operand.
func (o *operand) widened(wide []float32, from, to, depth, k int) (stride int) {
	if o.deep {
		for j := from; j < to; j++ {
			o.widen(wide[(j-from)*k:][:k], o.half[j*o.stride+depth:][:k])
		}
		return k
	}
	n := to - from
	for p := range k {
		o.widen(wide[p*n:][:n], o.half[(depth+p)*o.stride+from:][:n])
	}
	return n
}

// packFloats is pack of an operand that is stored as float32.
func (o *operand) packFloats(dst []float32, from, to, depth, k int) {
	whole := (to - from) / o.unit
	if !o.deep && whole > 0 {
		o.copy(dst, o.wide[depth*o.stride+from:], o.stride, k, whole)
	}
	for i := 0; o.deep && i < whole; i++ {
		o.transpose(dst[i*o.unit*k:], o.wide[(from+i*o.unit)*o.stride+depth:], o.stride, k)
	}
	from += whole * o.unit
	if from == to {
		return
	}
	last := dst[whole*o.unit*k:]
	if o.deep {
		packColumns(last, o.wide[from*o.stride+depth:], o.stride, o.unit, to-from, k)
	} else {
		packEdge(last, o.wide[depth*o.stride+from:], o.stride, o.unit, to-from, k)
	}
}

// packEdge writes dst[p*unit+j] = src[p*stride+j] for j < cols, else 0.
func packEdge(dst, src []float32, stride, unit, cols, k int) {
	for p := range k {
		row := dst[p*unit : (p+1)*unit]
		copy(row, src[p*stride:p*stride+cols])
		clear(row[cols:])
	}
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
