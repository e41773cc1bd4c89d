package main

import "fmt"

// groupPanels is how many panels copyRows writes side by side when it can: a visit to a
// row costs a page and a cache line, so it should take as much from it as possible.
const groupPanels = 4

func pack(s *source) {
	for _, unit := range []int{tileRows, vectorFloats * tileVectors} {
		copyRows(s, unit, 1)
		copyRows(s, unit, groupPanels)
	}
	transpose(s)
}

// copyRows emits dst[i*step+p*unit+j] = src[p*stride+i*unit+j] for i < panels, j < unit
// and p < k: panels of `unit` columns each.
func copyRows(s *source, unit, panels int) {
	f := s.begin(fmt.Sprintf("copyRows%dx%d", panels, unit), "func(dst, src *float32, step, stride, k int)",
		fmt.Sprintf("writes dst[i*step+p*%d+j] = src[p*stride+i*%d+j] for i < %d, j < %d and p < k.", unit, unit, panels, unit))
	to := []reg{f.integer("dst")}
	src, step, stride, k := f.integer("src"), f.stride("step"), f.stride("stride"), f.integer("k")
	for i := 1; i < panels; i++ {
		to = append(to, f.reg())
		f.op("ADD", "%v, %v, %v", step, to[i-1], to[i])
	}
	f.label("row")
	f.op("CBZ", "%v, end", k)
	for i, dst := range to {
		f.scoped(func() {
			var row []vec
			for at := 0; at < unit; at += vectorFloats {
				v := f.vec()
				f.op("FMOVQ", "%d(%v), F%d", 4*(i*unit+at), src, v)
				row = append(row, v)
			}
			for _, v := range row {
				f.op("FMOVQ.P", "F%d, %d(%v)", v, 4*vectorFloats, dst)
			}
		})
	}
	f.op("ADD", "%v, %v", stride, src)
	f.op("SUB", "$1, %v", k)
	f.op("B", "row")
	f.label("end")
	f.end()
}

// transpose emits dst[p*dstRow+j] = src[j*srcRow+p] for j < 4 and p < k, in blocks of 4x4.
func transpose(s *source) {
	f := s.begin("transpose4", "func(dst, src *float32, dstRow, srcRow, k int)",
		"writes dst[p*dstRow+j] = src[j*srcRow+p] for j < 4 and p < k.")
	dst, rows := f.integer("dst"), []reg{f.integer("src")}
	dstRow, srcRow, k := f.stride("dstRow"), f.stride("srcRow"), f.integer("k")
	for i := 1; i < vectorFloats; i++ {
		rows = append(rows, f.reg())
		f.op("ADD", "%v, %v, %v", srcRow, rows[i-1], rows[i])
	}
	store := func(v vec) { f.op("VST1.P", "[%v.S4], (%v)(%v)", v, dst, dstRow) }
	f.op("CMP", "$%d, %v", vectorFloats, k)
	f.op("BLT", "rest")
	f.label("block")
	f.scoped(func() {
		var r [vectorFloats]vec
		for i := range r {
			r[i] = f.vec()
			f.op("FMOVQ.P", "%d(%v), F%d", 4*vectorFloats, rows[i], r[i])
		}
		for _, column := range f.transposed(r) {
			store(column)
		}
	})
	f.op("SUB", "$%d, %v", vectorFloats, k)
	f.op("CMP", "$%d, %v", vectorFloats, k)
	f.op("BGE", "block")
	f.label("rest")
	f.op("CBZ", "%v, end", k)
	column := f.vec()
	for i, row := range rows {
		f.op("VLD1.P", "4(%v), %v.S[%d]", row, column, i)
	}
	store(column)
	f.op("SUB", "$1, %v", k)
	f.op("B", "rest")
	f.label("end")
	f.end()
}

// transposed exchanges rows and columns: single floats, then pairs.
func (f *function) transposed(r [vectorFloats]vec) (columns [vectorFloats]vec) {
	var pairs [vectorFloats]vec
	for i := 0; i < vectorFloats; i += 2 {
		for odd := range 2 {
			pairs[i+odd] = f.vec()
			f.op(fmt.Sprintf("VTRN%d", odd+1), "%v.S4, %v.S4, %v.S4", r[i+1], r[i], pairs[i+odd])
		}
	}
	for i := range columns {
		columns[i] = f.vec()
		f.op(fmt.Sprintf("VTRN%d", i/2+1), "%v.D2, %v.D2, %v.D2", pairs[2+i%2], pairs[i%2], columns[i])
	}
	return columns
}
