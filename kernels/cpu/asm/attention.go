package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// highest gives an XMM with the largest lane of v.
func highest(v reg.VecVirtual) reg.VecVirtual {
	v = halved(v, VMAXPS)
	high, low := XMM(), v.AsX()
	VEXTRACTF128(Imm(1), v, high)
	VMAXPS(low, high, high)
	VMOVHLPS(high, high, low)
	VMAXPS(low, high, high)
	VMOVSHDUP(high, low)
	VMAXSS(low, high, high)
	return high
}

func axpy() {
	begin("axpyAVX2", "func(y, x []float32, s float32)", "computes y += s*x.")
	y, x, s := slice("y"), slice("x"), scalar("s")
	loop("y", func(l lanes) {
		v := l.load(y)
		VFMADD231PS(l.load(x), s, v)
		l.store(v, y)
	})
	end()
}

func maximum() {
	begin("maxAVX2", "func(x []float32) float32", "is the largest element, minus infinity without any.")
	x := slice("x")
	least, top := YMM(), YMM()
	VMOVUPS(constant(float32(math.Inf(-1))), least)
	VMOVAPS(least, top)
	loop("x", func(l lanes) {
		v := l.load(x)
		l.replace(v, least)
		VMAXPS(top, v, top)
	})
	Store(highest(top), ReturnIndex(0))
	end()
}

func rotate() {
	begin("rotateAVX2", "func(x, cos, sin []float32, sign float32)",
		"turns the pairs (x[i], x[i+half]) of each 2*half floats of x, with half the length of cos and sin.")
	low, cos, sin := slice("x"), slice("cos"), slice("sin")
	sign := scalar("sign")
	left, half := Load(Param("x").Len(), GP64()), Load(Param("cos").Len(), GP64())
	high := GP64()
	LEAQ(Mem{Base: low, Index: half, Scale: 4}, high)
	Label("head")
	SUBQ(half, left)
	SUBQ(half, left)
	JL(LabelRef("done"))
	pass("pairs", "cos", func(l lanes) {
		c, s, x, y := l.load(cos), l.load(sin), l.load(low), l.load(high)
		VMULPS(sign, s, s)
		a, b := YMM(), YMM()
		VMULPS(s, y, a)
		VFMSUB231PS(c, x, a)
		VMULPS(s, x, b)
		VFMADD231PS(c, y, b)
		l.store(a, low)
		l.store(b, high)
	})
	LEAQ(Mem{Base: low, Index: half, Scale: 8}, low)
	LEAQ(Mem{Base: high, Index: half, Scale: 8}, high)
	JMP(LabelRef("head"))
	Label("done")
	end()
}

// rowsAhead is how many rows before their use a loop over rows asks for them: rows of a head are so
// far apart that the processor does not guess the next one, and memory takes as long as some rows.
const rowsAhead = 8

// eachRow emits body for as many rows as the slice `rows` has elements; it may spoil n, which is
// the parameter cols. Pointers go on by their strides, which are given as parameters.
func eachRow(rows string, pointers []reg.Register, strides []string, body func(n reg.Register, ahead []reg.Register)) {
	left := Load(Param(rows).Len(), GP64())
	var bytes []reg.Register
	for _, name := range strides {
		stride := Load(Param(name), GP64())
		SHLQ(Imm(2), stride)
		bytes = append(bytes, stride)
	}
	Label("row")
	TESTQ(left, left)
	JZ(LabelRef("done"))
	var ahead []reg.Register
	for i, p := range pointers {
		at := GP64()
		LEAQ(Mem{Base: p, Index: bytes[i], Scale: rowsAhead}, at)
		ahead = append(ahead, at)
	}
	body(Load(Param("cols"), GP64()), ahead)
	for i, p := range pointers {
		ADDQ(bytes[i], p)
	}
	DECQ(left)
	JMP(LabelRef("row"))
	Label("done")
}

func timesRows() {
	begin("timesRowsAVX2", "func(dst, src []float32, dstRow, srcRow, cols int, s []float32)",
		"computes rows dst = s[r]*src of cols floats, dstRow and srcRow apart.")
	scaledRows(func(l lanes, v, factor reg.VecVirtual, _ reg.Register) { VMULPS(factor, v, v) })

	begin("axpyRowsAVX2", "func(dst, src []float32, dstRow, srcRow, cols int, s []float32)",
		"computes rows dst += s[r]*src of cols floats, dstRow and srcRow apart.")
	scaledRows(func(l lanes, v, factor reg.VecVirtual, dst reg.Register) { VFMADD213PS(l.load(dst), factor, v) })
}

// scaledRows emits a function whose compute makes a vector of src, v, that of dst.
func scaledRows(compute func(l lanes, v, factor reg.VecVirtual, dst reg.Register)) {
	dst, src, s := slice("dst"), slice("src"), slice("s")
	eachRow("s", []reg.Register{dst, src}, []string{"dstRow", "srcRow"}, func(n reg.Register, ahead []reg.Register) {
		factor := YMM()
		VBROADCASTSS(Mem{Base: s}, factor)
		ADDQ(Imm(4), s)
		span("cols", n, 2, func(l lanes, k int) {
			if k == 0 {
				PREFETCHT0(l.at(ahead[0]))
				PREFETCHT0(l.at(ahead[1]))
			}
			v := l.load(src)
			compute(l, v, factor, dst)
			l.store(v, dst)
		})
	})
	end()
}

func dotRows() {
	begin("dotRowsAVX2", "func(out, x, y []float32, xRow, yRow, cols int)",
		"computes out[r] = the product of rows of x and y, xRow and yRow apart.")
	out, x, y := slice("out"), slice("x"), slice("y")
	eachRow("out", []reg.Register{x, y}, []string{"xRow", "yRow"}, func(n reg.Register, ahead []reg.Register) {
		sum := zeros()
		span("cols", n, len(sum), func(l lanes, k int) {
			if k%2 == 0 {
				PREFETCHT0(l.at(ahead[0]))
				PREFETCHT0(l.at(ahead[1]))
			}
			VFMADD231PS(l.load(y), l.load(x), sum[k])
		})
		VMOVSS(sum.total().(reg.VecVirtual).AsX(), Mem{Base: out})
		ADDQ(Imm(4), out)
	})
	end()
}

// weighted keeps four vectors of a column in registers, then one, then what is left.
func weighted() {
	begin("weightedAVX2", "func(out, weights, rows []float32, stride int)", "adds weights[i] times the row at i*stride of rows to out.")
	out, rows, weights := slice("out"), slice("rows"), slice("weights")
	stride, count := Load(Param("stride"), GP64()), argument(Param("weights").Len())
	times := 0
	column := func(l lanes, vectors int) {
		name := fmt.Sprintf("column%d", times)
		times++
		var sums []reg.VecVirtual
		at := l
		for k := range vectors {
			at.disp = 4 * vectorFloats * k
			sums = append(sums, at.load(out))
		}
		i, row := GP64(), GP64()
		XORQ(i, i)
		MOVQ(rows, row)
		Label(name)
		CMPQ(i, count)
		JGE(LabelRef(name + "Done"))
		w := YMM()
		VBROADCASTSS(Mem{Base: weights, Index: i, Scale: 4}, w)
		for k := range vectors {
			at.disp = 4 * vectorFloats * k
			VFMADD231PS(at.load(row), w, sums[k])
		}
		LEAQ(Mem{Base: row, Index: stride, Scale: 4}, row)
		INCQ(i)
		JMP(LabelRef(name))
		Label(name + "Done")
		for k := range vectors {
			at.disp = 4 * vectorFloats * k
			at.store(sums[k], out)
		}
	}
	n, offset := Load(Param("out").Len(), GP64()), GP64()
	XORQ(offset, offset)
	for _, vectors := range []int{4, 1} {
		label := fmt.Sprintf("vectors%d", vectors)
		Label(label)
		CMPQ(n, Imm(uint64(vectors*vectorFloats)))
		JL(LabelRef(label + "Done"))
		column(lanes{offset: offset}, vectors)
		ADDQ(Imm(uint64(4*vectors*vectorFloats)), offset)
		SUBQ(Imm(uint64(vectors*vectorFloats)), n)
		JMP(LabelRef(label))
		Label(label + "Done")
	}
	TESTQ(n, n)
	JZ(LabelRef("end"))
	column(lanes{offset: offset, mask: firstLanes(n)}, 1)
	Label("end")
	end()
}
