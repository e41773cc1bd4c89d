package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Rows may be pages apart, where the processor does not guess the next address. copyRows
// asks for nearRows ahead in the first cache, whose eight ways are all that rows 4 KiB
// apart can have there, and for farRows ahead in the second, for the latency of memory.
const (
	nearRows = 6
	farRows  = 48 // a task's rows come out of memory, not out of the third cache
)

// groupPanels is how many panels of a unit copyRows writes side by side when it can. A visit
// to a row costs a page and a cache line, so it should take as much from it as possible.
func groupPanels(unit int) int {
	if unit == 4 {
		return 8
	}
	return 4
}

// copyRows emits dst[i*step+p*unit+j] = src[p*stride+i*unit+j] for i < panels, j < unit
// and p < k: panels of `unit` columns each.
func copyRows(unit, panels int) {
	name := fmt.Sprintf("copyRows%dx%d", panels, unit)
	begin(name, "func(dst, src *float32, step, stride, k int)",
		fmt.Sprintf("writes dst[i*step+p*%d+j] = src[p*stride+i*%d+j] for i < %d, j < %d and p < k.", unit, unit, panels, unit))
	to := []reg.Register{Load(Param("dst"), GP64())}
	src, step := Load(Param("src"), GP64()), Load(Param("step"), GP64())
	stride, k := Load(Param("stride"), GP64()), Load(Param("k"), GP64())
	SHLQ(Imm(2), stride)
	for i := 1; i < panels; i++ {
		to = append(to, GP64())
		LEAQ(Mem{Base: to[i-1], Index: step, Scale: 4}, to[i])
	}
	near, far := GP64(), GP64()
	IMUL3Q(U32(nearRows), stride, near)
	IMUL3Q(U32(farRows), stride, far)
	Label("row")
	TESTQ(k, k)
	JZ(LabelRef("end"))
	last := 4*unit*panels - 4
	for at := 0; at < last+64; at += 64 { // a row need not begin with a line
		PREFETCHT0(Mem{Base: src, Index: near, Scale: 1, Disp: min(at, last)})
		PREFETCHT1(Mem{Base: src, Index: far, Scale: 1, Disp: min(at, last)})
	}
	for i, dst := range to {
		copyBytes(Mem{Base: dst}, Mem{Base: src, Disp: 4 * unit * i}, 4*unit)
		ADDQ(U32(4*unit), dst)
	}
	ADDQ(stride, src)
	DECQ(k)
	JMP(LabelRef("row"))
	Label("end")
	end()
}

// copyBytes copies n bytes, a multiple of 8, in the largest pieces that fit.
func copyBytes(dst, src Mem, n int) {
	for at := 0; at < n; {
		from, to := src.Offset(at), dst.Offset(at)
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
