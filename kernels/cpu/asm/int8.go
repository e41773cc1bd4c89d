package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// The layout of int8 weights: quant.PanelRows, the columns of B here, quant.MatrixGroup, and where a block's numbers begin.
const (
	int8Columns = 32
	int8Group   = 64
	int8Scales  = 4 * int8Columns
)

// int8Block is a walk through some steps of K of a panel, block by block.
type int8Block struct {
	block, numbers reg.Register // where the block begins, and its number of the next step
	left, now, k   reg.Register // steps of K: until the block ends, of it to be taken, behind these
}

// walk emits do for the blocks of k steps from `skip` on in the first one, and step for each of their steps,
// unroll at a time where there are as many.
func (w *int8Block) walk(unroll int, do func(), step func(disp int)) {
	w.left, w.now = GP64(), GP64()
	MOVQ(U32(int8Group), w.left)
	skip := Load(Param("skip"), GP64())
	SUBQ(skip, w.left)
	SHLQ(Imm(5), skip) // bytes
	w.numbers = GP64()
	LEAQ(Mem{Base: w.block, Index: skip, Scale: 1, Disp: int8Scales}, w.numbers)
	Label("block")
	MOVQ(w.left, w.now)
	CMPQ(w.now, w.k)
	CMOVQGT(w.k, w.now)
	SUBQ(w.now, w.k)
	do()
	Label("steps")
	CMPQ(w.now, Imm(uint64(unroll)))
	JL(LabelRef("rest"))
	for u := range unroll {
		step(u * int8Columns)
	}
	ADDQ(U32(unroll*int8Columns), w.numbers)
	SUBQ(Imm(uint64(unroll)), w.now)
	JMP(LabelRef("steps"))
	Label("rest")
	TESTQ(w.now, w.now)
	JZ(LabelRef("next"))
	step(0)
	ADDQ(Imm(int8Columns), w.numbers)
	DECQ(w.now)
	JMP(LabelRef("rest"))
	Label("next")
	MOVQ(w.numbers, w.block)
	ADDQ(U32(int8Scales), w.numbers)
	MOVQ(U32(int8Group), w.left)
	TESTQ(w.k, w.k)
	JNZ(LabelRef("block"))
}

// weights loads the weights of a step of K from column first on: numbers times scales.
func (w *int8Block) weights(kind vectorKind, disp, first int, scale reg.VecVirtual) reg.VecVirtual {
	x := kind.make()
	VPMOVSXBD(Mem{Base: w.numbers, Disp: disp + first}, x)
	VCVTDQ2PS(x, x)
	VMULPS(scale, x, x)
	return x
}

// int8Direct is a kernel for few rows of A and a panel of int8 weights.
type int8Direct struct {
	rows    int
	vectors int // of columns that are added side by side
	kind    vectorKind
}

// multiply emits out[i*32+j] = init[j] + the sum of a[p*aStep+i] times weight p of row j, for i < rows and p < k.
func (d int8Direct) multiply() {
	begin(fmt.Sprintf("directInt8%dx%d%s", d.rows, int8Columns, map[int]string{ymm.bytes: "AVX2", zmm.bytes: "AVX512"}[d.kind.bytes]),
		"func(out, init, a, panel *float32, aStep, skip, k int)",
		fmt.Sprintf("computes out[i*32+j] = init[j] + the sum of a[p*aStep+i] times weight skip+p of row j of the panel for i < %d, j < 32 and p < k.", d.rows))
	lanes := d.kind.bytes / 4
	out, init, panel := Load(Param("out"), GP64()), Load(Param("init"), GP64()), Load(Param("panel"), GP64())
	aStep := Load(Param("aStep"), GP64())
	SHLQ(Imm(2), aStep)
	first, times := GP64(), int8Columns/lanes/d.vectors // first is how many columns are done
	if times > 1 {
		XORQ(first, first)
		Label("columns")
	}
	w := int8Block{block: GP64(), k: Load(Param("k"), GP64())}
	a := Load(Param("a"), GP64())
	MOVQ(panel, w.block)
	sums := make([][]reg.VecVirtual, d.vectors)
	for v := range sums {
		for range d.rows {
			sum := d.kind.make()
			VMOVUPS(Mem{Base: init, Disp: v * d.kind.bytes}, sum)
			sums[v] = append(sums[v], sum)
		}
	}
	scales := make([]reg.VecVirtual, d.vectors)
	for v := range scales {
		scales[v] = d.kind.make()
	}
	at := GP64() // of a step's numbers
	w.walk(8, func() {
		scale := w.block
		if times > 1 {
			scale = GP64()
			LEAQ(Mem{Base: w.block, Index: first, Scale: 4}, scale)
		}
		for v := range scales {
			VMOVUPS(Mem{Base: scale, Disp: v * d.kind.bytes}, scales[v])
		}
	}, func(disp int) {
		from := w
		if times > 1 {
			if disp == 0 {
				LEAQ(Mem{Base: w.numbers, Index: first, Scale: 1}, at)
			}
			from.numbers = at
		}
		var step []reg.VecVirtual
		for v := range scales {
			step = append(step, from.weights(d.kind, disp, v*lanes, scales[v]))
		}
		for i := range d.rows {
			x := d.kind.make()
			VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, x)
			for v := range step {
				VFMADD231PS(step[v], x, sums[v][i])
			}
		}
		ADDQ(aStep, a)
	})
	for v := range sums {
		for i := range d.rows {
			VMOVUPS(sums[v][i], Mem{Base: out, Disp: 4*i*int8Columns + v*d.kind.bytes})
		}
	}
	if times > 1 {
		width := uint64(d.vectors * d.kind.bytes)
		ADDQ(Imm(width), out)
		ADDQ(Imm(width), init)
		ADDQ(Imm(uint64(d.vectors*lanes)), first)
		CMPQ(first, Imm(int8Columns))
		JL(LabelRef("columns"))
	}
	end()
}

// widenInt8 emits out[p*step+j] = weight skip+p of row j of a panel for j < 32 and p < k.
func widenInt8() {
	begin("widenInt8AVX2", "func(out, panel *float32, step, skip, k int)", "writes out[p*step+j] = weight skip+p of row j of the panel for j < 32 and p < k.")
	out, step := Load(Param("out"), GP64()), Load(Param("step"), GP64())
	SHLQ(Imm(2), step)
	w := int8Block{block: Load(Param("panel"), GP64()), k: Load(Param("k"), GP64())}
	scales := make([]reg.VecVirtual, int8Columns/vectorFloats)
	for v := range scales {
		scales[v] = YMM()
	}
	w.walk(8, func() {
		for v := range scales {
			VMOVUPS(Mem{Base: w.block, Disp: v * ymm.bytes}, scales[v])
		}
	}, func(disp int) {
		for v := range scales {
			VMOVUPS(w.weights(ymm, disp, v*vectorFloats, scales[v]), Mem{Base: out, Disp: v * ymm.bytes})
		}
		ADDQ(step, out)
	})
	end()
}
