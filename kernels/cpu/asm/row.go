package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// multiplyRow emits out[j] = init[j] + the sum of x[p]*b[j*stride+p] for j < columns and p < k: a row of A times columns of B that each lie
// together in memory. They are exchanged with rows in registers, eight by eight, so that sums have the order that micro-kernels give them.
func multiplyRow(columns int) {
	begin(fmt.Sprintf("multiplyRow%d", columns), "func(out, init, x, b *float32, stride, k int)",
		fmt.Sprintf("computes out[j] = init[j] + the sum of x[p]*b[j*stride+p] for j < %d and p < k.", columns))
	out, init := Load(Param("out"), GP64()), Load(Param("init"), GP64())
	x, b := Load(Param("x"), GP64()), Load(Param("b"), GP64())
	stride, k := Load(Param("stride"), GP64()), Load(Param("k"), GP64())
	SHLQ(Imm(2), stride)
	ahead, eight := GP64(), GP64()
	IMUL3Q(U32(farRows), stride, ahead)
	MOVQ(stride, eight)
	SHLQ(Imm(3), eight)
	sums := make([]reg.VecVirtual, columns/vectorFloats)
	for i := range sums {
		sums[i] = YMM()
		VMOVUPS(Mem{Base: init, Disp: 4 * vectorFloats * i}, sums[i])
	}
	add := func(sum, column reg.VecVirtual, p int) {
		element := YMM()
		VBROADCASTSS(Mem{Base: x, Disp: 4 * p}, element)
		VFMADD231PS(column, element, sum)
	}
	Label("block")
	CMPQ(k, Imm(vectorFloats))
	JL(LabelRef("rest"))
	at := GP64()
	MOVQ(b, at)
	for _, sum := range sums {
		for p, column := range transposed(loadRows(vectorFloats, at, stride, ahead, nil)) {
			add(sum, column, p)
		}
		ADDQ(eight, at)
	}
	ADDQ(Imm(4*vectorFloats), x)
	ADDQ(Imm(4*vectorFloats), b)
	SUBQ(Imm(vectorFloats), k)
	JMP(LabelRef("block"))
	Label("rest")
	TESTQ(k, k)
	JZ(LabelRef("end"))
	MOVQ(b, at)
	for i, sum := range sums {
		left := GP64()
		MOVQ(k, left)
		for p, column := range transposed(loadRows(vectorFloats, at, stride, ahead, firstLanes(k))) {
			add(sum, column, p)
			DECQ(left)
			JZ(LabelRef(fmt.Sprintf("done%d", i)))
		}
		Label(fmt.Sprintf("done%d", i))
		ADDQ(eight, at)
	}
	Label("end")
	for i, sum := range sums {
		VMOVUPS(sum, Mem{Base: out, Disp: 4 * vectorFloats * i})
	}
	end()
}
