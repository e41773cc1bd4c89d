package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// element says what the columns of B hold that a direct kernel reads.
type element int

const (
	ofFloats element = iota
	ofPairs          // of BF16 numbers, neighbours in K, in A and B
	ofHalves         // of the same in B, which are widened; A has floats
)

// direct is a kernel for few rows of A and columns of B that each lie together in memory, which it reads there. They are exchanged with rows in
// registers, four steps of K at a time, so that sums have the order that micro-kernels give them.
type direct struct {
	rows, columns int
	vectors       int // of columns that are added side by side: sums of one alone would wait for each other
	kind          vectorKind
	of            element

	a, b, far             reg.Register // far is where B is that will be read later
	aStep, stride, thrice reg.Register // bytes: a step of A, from a column of B to the next one, and to the third one
	k                     reg.Register
	sums                  [][]reg.VecVirtual // by vector and row
}

// multiply emits out[i*columns+j] = init[j] + the sum of a[p*aStep+i]*b[j*stride+p] for i < rows, j < columns and p < k.
func (d direct) multiply() {
	kind, sum := [...]string{"", "Pairs", "Halves"}[d.of], "a[p*aStep+i]*b[j*stride+p]"
	if d.of == ofHalves {
		sum = "a[2*p*aStep+i] times the lower half and a[(2*p+1)*aStep+i] times the upper half of b[j*stride+p]"
	}
	begin(fmt.Sprintf("direct%s%dx%d", kind, d.rows, d.columns), "func(out, init, a, b *float32, aStep, stride, k int)",
		fmt.Sprintf("computes out[i*%d+j] = init[j] + the sum of %s for i < %d, j < %d and p < k.", d.columns, sum, d.rows, d.columns))
	out, init := Load(Param("out"), GP64()), Load(Param("init"), GP64())
	columns := Load(Param("b"), GP64())
	d.aStep, d.stride = Load(Param("aStep"), GP64()), Load(Param("stride"), GP64())
	SHLQ(Imm(2), d.aStep)
	SHLQ(Imm(2), d.stride)
	d.thrice = GP64()
	LEAQ(Mem{Base: d.stride, Index: d.stride, Scale: 2}, d.thrice)
	left, times := GP64(), d.columns/d.lanes()/d.vectors
	if times > 1 {
		MOVQ(U32(times), left)
		Label("columns")
	}
	d.a, d.k = Load(Param("a"), GP64()), Load(Param("k"), GP64())
	d.b, d.far = GP64(), GP64()
	MOVQ(columns, d.b)
	IMUL3Q(U32(farRows), d.stride, d.far)
	ADDQ(columns, d.far)
	d.sums = make([][]reg.VecVirtual, d.vectors)
	d.eachSum(func(v, i int) {
		sum := d.kind.make()
		VMOVUPS(Mem{Base: init, Disp: v * d.kind.bytes}, sum)
		d.sums[v] = append(d.sums[v], sum)
	})
	d.depth()
	d.eachSum(func(v, i int) { VMOVUPS(d.sums[v][i], Mem{Base: out, Disp: 4*i*d.columns + v*d.kind.bytes}) })
	if times > 1 {
		ADDQ(Imm(uint64(d.vectors*d.kind.bytes)), out)
		ADDQ(Imm(uint64(d.vectors*d.kind.bytes)), init)
		next := GP64()
		IMUL3Q(U32(d.vectors*d.lanes()), d.stride, next)
		ADDQ(next, columns)
		DECQ(left)
		JNZ(LabelRef("columns"))
	}
	end()
}

func (d *direct) lanes() int { return d.kind.bytes / 4 }

func (d *direct) eachSum(do func(v, i int)) {
	for v := range d.vectors {
		for i := range d.rows {
			do(v, i)
		}
	}
}

// A round of the loop takes as many steps of K as micro-kernels do, stepsOf at a time.
const stepsOf = 4

// depth adds all products of the vectors of columns.
func (d *direct) depth() {
	Label("round")
	CMPQ(d.k, Imm(depthUnroll))
	JL(LabelRef("four"))
	for u := range depthUnroll / stepsOf {
		d.steps(4*stepsOf*u, u == 0)
	}
	ADDQ(Imm(4*depthUnroll), d.b)
	ADDQ(Imm(4*depthUnroll), d.far)
	SUBQ(Imm(depthUnroll), d.k)
	JMP(LabelRef("round"))
	Label("four")
	CMPQ(d.k, Imm(stepsOf))
	JL(LabelRef("rest"))
	d.steps(0, false)
	ADDQ(Imm(4*stepsOf), d.b)
	SUBQ(Imm(stepsOf), d.k)
	Label("rest")
	TESTQ(d.k, d.k)
	JZ(LabelRef("end"))
	d.last()
	Label("end")
}

// steps adds the products of stepsOf steps of K that begin some bytes behind the pointer.
func (d *direct) steps(disp int, ask bool) {
	at, far := GP64(), GP64()
	MOVQ(d.b, at)
	MOVQ(d.far, far)
	var a reg.Register
	for v := 0; v < d.vectors; v += d.together() {
		var columns [][]reg.VecVirtual
		for range d.together() {
			columns = append(columns, exchanged(d.kind, d.load(at, far, disp, ask)))
		}
		a = GP64()
		MOVQ(d.a, a)
		for p := range stepsOf {
			var step []reg.VecVirtual
			for _, c := range columns {
				step = append(step, c[p])
			}
			d.add(d.sums[v:], step, a)
		}
	}
	MOVQ(a, d.a)
}

// together is how many vectors of columns have room in registers at one time.
func (d *direct) together() int {
	if d.kind.bytes == ymm.bytes {
		return 1
	}
	return d.vectors
}

// load loads stepsOf floats of each column: in vector i columns i, 4+i, 8+i and so on, one in each four lanes. It goes on to the next
// columns. With ask it asks the second cache for what lies as far ahead.
func (d *direct) load(at, far reg.Register, disp int, ask bool) []reg.VecVirtual {
	rows := make([]reg.VecVirtual, 4)
	for part := range d.lanes() / 4 {
		for i := range rows {
			from := d.column(at, i).Offset(disp)
			switch {
			case part == 0 && d.kind.bytes == ymm.bytes: // to lanes that are overwritten, too
				rows[i] = YMM()
				VBROADCASTF128(from, rows[i])
			case part == 0:
				rows[i] = ZMM()
				VBROADCASTF32X4(from, rows[i])
			case d.kind.bytes == ymm.bytes:
				VINSERTF128(Imm(1), from, rows[i], rows[i])
			default:
				VINSERTF32X4(Imm(uint64(part)), from, rows[i], rows[i])
			}
			if ask {
				PREFETCHT1(d.column(far, i))
			}
		}
		LEAQ(Mem{Base: at, Index: d.stride, Scale: 4}, at)
		if ask {
			LEAQ(Mem{Base: far, Index: d.stride, Scale: 4}, far)
		}
	}
	return rows
}

// column is where column i < 4 is from a pointer on.
func (d *direct) column(at reg.Register, i int) Mem {
	switch i {
	case 0:
		return Mem{Base: at}
	case 3:
		return Mem{Base: at, Index: d.thrice, Scale: 1}
	default:
		return Mem{Base: at, Index: d.stride, Scale: uint8(i)}
	}
}

// last adds the products of fewer than stepsOf steps, one at a time.
func (d *direct) last() {
	Label("single")
	at := GP64()
	MOVQ(d.b, at)
	var step []reg.VecVirtual
	for range d.vectors {
		step = append(step, d.single(at))
	}
	d.add(d.sums, step, d.a)
	ADDQ(Imm(4), d.b)
	DECQ(d.k)
	JNZ(LabelRef("single"))
}

// single loads one float of each column, and goes on to the next columns.
func (d *direct) single(at reg.Register) reg.VecVirtual {
	all := d.kind.make()
	VBROADCASTSS(Mem{Base: at}, all)
	four := all.AsX()
	for part := range d.lanes() / 4 {
		if part > 0 {
			four = XMM()
			VBROADCASTSS(Mem{Base: at}, four)
		}
		for i := 1; i < 4; i++ {
			VINSERTPS(Imm(uint64(i<<4)), d.column(at, i), four, four)
		}
		LEAQ(Mem{Base: at, Index: d.stride, Scale: 4}, at)
		switch {
		case part == 0:
		case d.kind.bytes == ymm.bytes:
			VINSERTF128(Imm(1), four, all, all)
		default:
			VINSERTF32X4(Imm(uint64(part)), four, all, all)
		}
	}
	return all
}

// add adds the products of a step of K for some vectors of columns to their sums, and goes on to the next one of A.
func (d *direct) add(sums [][]reg.VecVirtual, step []reg.VecVirtual, a reg.Register) {
	if d.of != ofHalves {
		d.addStep(sums, step, a)
		return
	}
	halves := make([]reg.VecVirtual, len(step))
	for v := range step {
		halves[v] = d.kind.make()
		VPSLLD(Imm(16), step[v], halves[v])
	}
	d.addStep(sums, halves, a)
	for v := range step {
		VPSRLD(Imm(16), step[v], step[v])
		VPSLLD(Imm(16), step[v], step[v])
	}
	d.addStep(sums, step, a)
}

func (d *direct) addStep(sums [][]reg.VecVirtual, step []reg.VecVirtual, a reg.Register) {
	for i := range d.rows {
		x := d.kind.make()
		VBROADCASTSS(Mem{Base: a, Disp: 4 * i}, x)
		for v, column := range step {
			if d.of == ofPairs {
				addPairs(column, x, sums[v][i])
			} else {
				VFMADD231PS(column, x, sums[v][i])
			}
		}
	}
	ADDQ(d.aStep, a)
}
