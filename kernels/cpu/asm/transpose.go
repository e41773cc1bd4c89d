package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// transpose emits dst[p*dstRow+j] = src[j*srcRow+p] for 8 j and k p, in blocks of 8x8.
func transpose() {
	begin("transpose8", "func(dst, src *float32, dstRow, srcRow, k int)",
		"writes dst[p*dstRow+j] = src[j*srcRow+p] for j < 8 and p < k, a multiple of 8.")
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	dstRow, srcRow := Load(Param("dstRow"), GP64()), Load(Param("srcRow"), GP64())
	k := Load(Param("k"), GP64())
	SHLQ(Imm(2), dstRow)
	SHLQ(Imm(2), srcRow)
	Label("block")
	TESTQ(k, k)
	JZ(LabelRef("end"))
	rows := loadRows(src, srcRow)
	for _, column := range transposed(rows) {
		VMOVUPS(column, Mem{Base: dst})
		ADDQ(dstRow, dst)
	}
	ADDQ(Imm(4*vectorFloats), src)
	SUBQ(Imm(vectorFloats), k)
	JMP(LabelRef("block"))
	Label("end")
	end()
}

func loadRows(src, stride reg.Register) []reg.VecVirtual {
	at := GP64()
	MOVQ(src, at)
	var rows []reg.VecVirtual
	for range vectorFloats {
		v := YMM()
		VMOVUPS(Mem{Base: at}, v)
		ADDQ(stride, at)
		rows = append(rows, v)
	}
	return rows
}

// transposed exchanges rows and columns: pairs, then quadruples, then halves.
func transposed(r []reg.VecVirtual) []reg.VecVirtual {
	pairs := make([]reg.VecVirtual, vectorFloats)
	for i := 0; i < vectorFloats; i += 2 {
		pairs[i], pairs[i+1] = YMM(), YMM()
		VUNPCKLPS(r[i+1], r[i], pairs[i])
		VUNPCKHPS(r[i+1], r[i], pairs[i+1])
	}
	quads := make([]reg.VecVirtual, vectorFloats)
	for i := 0; i < vectorFloats; i += 4 {
		for j := range 2 {
			quads[i+2*j], quads[i+2*j+1] = YMM(), YMM()
			VSHUFPS(Imm(0x44), pairs[i+2+j], pairs[i+j], quads[i+2*j])
			VSHUFPS(Imm(0xee), pairs[i+2+j], pairs[i+j], quads[i+2*j+1])
		}
	}
	out := make([]reg.VecVirtual, vectorFloats)
	for j := range 4 {
		out[j], out[j+4] = YMM(), YMM()
		VPERM2F128(Imm(0x20), quads[4+j], quads[j], out[j])
		VPERM2F128(Imm(0x31), quads[4+j], quads[j], out[j+4])
	}
	return out
}
