package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// prefetchRows is how many rows ahead copyRows asks for: rows may be pages apart, where
// the processor does not guess the next address.
const prefetchRows = 8

// copyRows emits dst[p*unit+j] = src[p*stride+j] for j < unit and p < k.
func copyRows(unit int) {
	begin(fmt.Sprintf("copyRows%d", unit), "func(dst, src *float32, stride, k int)",
		fmt.Sprintf("writes dst[p*%d+j] = src[p*stride+j] for j < %d and p < k.", unit, unit))
	dst, src := Load(Param("dst"), GP64()), Load(Param("src"), GP64())
	stride, k := Load(Param("stride"), GP64()), Load(Param("k"), GP64())
	SHLQ(Imm(2), stride)
	ahead := GP64()
	LEAQ(Mem{Base: src, Index: stride, Scale: prefetchRows}, ahead)
	Label("row")
	TESTQ(k, k)
	JZ(LabelRef("end"))
	for line := 0; line < 4*unit; line += 64 {
		PREFETCHT0(Mem{Base: ahead, Disp: line})
	}
	copyBytes(dst, src, 4*unit)
	ADDQ(stride, src)
	ADDQ(stride, ahead)
	ADDQ(U32(4*unit), dst)
	DECQ(k)
	JMP(LabelRef("row"))
	Label("end")
	end()
}

// copyBytes copies n bytes, a multiple of 8, in the largest pieces that fit.
func copyBytes(dst, src reg.Register, n int) {
	for at := 0; at < n; {
		from, to := Mem{Base: src, Disp: at}, Mem{Base: dst, Disp: at}
		switch rest := n - at; {
		case rest >= 32:
			v := YMM()
			VMOVUPS(from, v)
			VMOVUPS(v, to)
			at += 32
		case rest >= 16:
			v := XMM()
			VMOVUPS(from, v)
			VMOVUPS(v, to)
			at += 16
		default:
			v := GP64()
			MOVQ(from, v)
			MOVQ(v, to)
			at += 8
		}
	}
}
