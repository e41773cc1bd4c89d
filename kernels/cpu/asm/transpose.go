package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose emits dst[p*dstRow+j] = src[j*srcRow+p] for j < rows <= 8 and p < k, in
// blocks of 8x8. It stores whole vectors: with less than 8 rows the places behind a
// stored row get what does not belong there, so a dstRow below 8 works because rows
// follow in ascending order, and the memory must go on for 8-rows floats.
func transpose(rows int) {
	begin(fmt.Sprintf("transpose%d", rows), "func(dst, src *float32, dstRow, srcRow, k int)",
		fmt.Sprintf("writes dst[p*dstRow+j] = src[j*srcRow+p] for j < %d and p < k, and anything for %d <= j < 8.", rows, rows))
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	dstRow, srcRow := Load(Param("dstRow"), GP64()), Load(Param("srcRow"), GP64())
	k := Load(Param("k"), GP64())
	SHLQ(Imm(2), dstRow)
	SHLQ(Imm(2), srcRow)
	ahead := GP64()
	IMUL3Q(U32(farRows), srcRow, ahead)
	Label("block")
	CMPQ(k, Imm(vectorFloats))
	JL(LabelRef("rest"))
	for _, column := range transposed(loadRows(rows, src, srcRow, ahead, nil)) {
		VMOVUPS(column, Mem{Base: dst})
		ADDQ(dstRow, dst)
	}
	ADDQ(Imm(4*vectorFloats), src)
	SUBQ(Imm(vectorFloats), k)
	JMP(LabelRef("block"))
	Label("rest")
	TESTQ(k, k)
	JZ(LabelRef("end"))
	for _, column := range transposed(loadRows(rows, src, srcRow, ahead, firstLanes(k))) {
		VMOVUPS(column, Mem{Base: dst})
		ADDQ(dstRow, dst)
		DECQ(k)
		JZ(LabelRef("end"))
	}
	Label("end")
	end()
}

// loadRows loads a vector of each row, or the lanes of mask; it repeats the last row up
// to eight. It asks the second cache for what the row farRows below has in the same place: the
// processor does not guess rows that are far apart, and the first cache would lose them again.
func loadRows(rows int, src, stride, ahead, mask reg.Register) []reg.VecVirtual {
	at := GP64()
	MOVQ(src, at)
	var vectors []reg.VecVirtual
	for range rows {
		v := YMM()
		if mask != nil {
			VMASKMOVPS(Mem{Base: at}, mask, v)
		} else {
			VMOVUPS(Mem{Base: at}, v)
		}
		PREFETCHT1(Mem{Base: at, Index: ahead, Scale: 1})
		ADDQ(stride, at)
		vectors = append(vectors, v)
	}
	for len(vectors) < vectorFloats {
		vectors = append(vectors, vectors[rows-1])
	}
	return vectors
}

// transposed exchanges rows and columns of 8x8: within each four rows, then the halves of vectors.
func transposed(r []reg.VecVirtual) []reg.VecVirtual {
	above, below := exchanged(ymm, r[:4]), exchanged(ymm, r[4:])
	out := make([]reg.VecVirtual, vectorFloats)
	for j := range 4 {
		out[j], out[j+4] = YMM(), YMM()
		VPERM2F128(Imm(0x20), below[j], above[j], out[j])
		VPERM2F128(Imm(0x31), below[j], above[j], out[j+4])
	}
	return out
}

// exchanged exchanges rows and columns of 4x4 in each four lanes of four rows: pairs, then quadruples.
func exchanged(kind vectorKind, r []reg.VecVirtual) []reg.VecVirtual {
	pairs, quads := make([]reg.VecVirtual, 4), make([]reg.VecVirtual, 4)
	for i := 0; i < 4; i += 2 {
		pairs[i], pairs[i+1] = kind.make(), kind.make()
		VUNPCKLPS(r[i+1], r[i], pairs[i])
		VUNPCKHPS(r[i+1], r[i], pairs[i+1])
	}
	for j := range 2 {
		quads[2*j], quads[2*j+1] = kind.make(), kind.make()
		VSHUFPS(Imm(0x44), pairs[2+j], pairs[j], quads[2*j])
		VSHUFPS(Imm(0xee), pairs[2+j], pairs[j], quads[2*j+1])
	}
	return quads
}
