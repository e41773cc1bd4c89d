package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectorKind is a register width for the micro-kernel.
type vectorKind struct {
	bytes int
	make  func() reg.VecVirtual
}

var (
	ymm = vectorKind{bytes: 32, make: YMM}
	zmm = vectorKind{bytes: 64, make: ZMM}
)

const (
	panelVectors = 2 // vectors in a row of B
	depthUnroll  = 4
)

// Offsets of the fields of cpu.tile.
const (
	tileK = 8 * iota
	tileA
	tileARow
	tileACol
	tileB
	tileInit
	tileC
	tileCRow
	tileAccumulate
)

// micro is the state of the micro-kernel while it is generated.
type micro struct {
	rows    int
	kind    vectorKind
	acc     [][]reg.VecVirtual // [rows][panelVectors]
	a       []reg.Register     // pointers to rows 0, 3, 6, ...
	aRow    reg.Register       // strides in bytes
	aCol    reg.Register
	b, tile reg.Register
}

// multiply emits a micro-kernel of `rows` rows, a multiple of 3, and two vectors. All
// sums stay in registers; each step of K is 2 loads of B, and a broadcast and 2 FMAs for
// each row of A.
func multiply(name string, rows int, kind vectorKind) {
	begin(name, "func(t *byte)", fmt.Sprintf("is the micro-kernel of %d rows and %d columns.", rows, panelVectors*kind.bytes/4))
	m := &micro{rows: rows, kind: kind, tile: Load(Param("t"), GP64())}
	m.setUp()
	k := m.field(tileK)
	Label("unrolled")
	CMPQ(k, Imm(depthUnroll))
	JL(LabelRef("single"))
	for u := range depthUnroll {
		m.step(u)
	}
	ADDQ(U32(depthUnroll*panelVectors*kind.bytes), m.b)
	SUBQ(Imm(depthUnroll), k)
	JMP(LabelRef("unrolled"))
	Label("single")
	TESTQ(k, k)
	JZ(LabelRef("store"))
	m.step(0)
	ADDQ(U32(panelVectors*kind.bytes), m.b)
	DECQ(k)
	JMP(LabelRef("single"))
	Label("store")
	m.store()
}

func (m *micro) field(offset int) reg.Register {
	r := GP64()
	MOVQ(Mem{Base: m.tile, Disp: offset}, r)
	return r
}

func (m *micro) setUp() {
	m.aRow, m.aCol = m.field(tileARow), m.field(tileACol)
	SHLQ(Imm(2), m.aRow)
	SHLQ(Imm(2), m.aCol)
	m.a = []reg.Register{m.field(tileA)}
	for i := 3; i < m.rows; i += 3 {
		next := GP64()
		LEAQ(Mem{Base: m.a[len(m.a)-1], Index: m.aRow, Scale: 2}, next)
		ADDQ(m.aRow, next)
		m.a = append(m.a, next)
	}
	m.b = m.field(tileB)
	m.prefetchC()
	init := m.field(tileInit)
	for range m.rows {
		var row []reg.VecVirtual
		for v := range panelVectors {
			acc := m.kind.make()
			VMOVUPS(Mem{Base: init, Disp: v * m.kind.bytes}, acc)
			row = append(row, acc)
		}
		m.acc = append(m.acc, row)
	}
}

// prefetchC asks for the rows of C early; they are far apart in memory.
func (m *micro) prefetchC() {
	c, row := m.field(tileC), m.field(tileCRow)
	for range m.rows {
		for v := range panelVectors * m.kind.bytes / 64 {
			PREFETCHT0(Mem{Base: c, Disp: 64 * v})
		}
		LEAQ(Mem{Base: c, Index: row, Scale: 4}, c)
	}
}

// step adds the products of one row of B, u rows after the pointer, and advances A.
func (m *micro) step(u int) {
	var b []reg.VecVirtual
	for v := range panelVectors {
		x := m.kind.make()
		VMOVUPS(Mem{Base: m.b, Disp: (u*panelVectors + v) * m.kind.bytes}, x)
		b = append(b, x)
	}
	for i := range m.rows {
		at := Mem{Base: m.a[i/3]}
		if i%3 > 0 {
			at.Index, at.Scale = m.aRow, uint8(i%3)
		}
		x := m.kind.make()
		VBROADCASTSS(at, x)
		for v := range panelVectors {
			VFMADD231PS(b[v], x, m.acc[i][v])
		}
	}
	for _, p := range m.a {
		ADDQ(m.aCol, p)
	}
}

func (m *micro) store() {
	c, row, flag := m.field(tileC), m.field(tileCRow), m.field(tileAccumulate)
	SHLQ(Imm(2), row)
	TESTQ(flag, flag)
	JZ(LabelRef("overwrite"))
	at := GP64()
	MOVQ(c, at)
	for i := range m.rows {
		for v := range panelVectors {
			VADDPS(Mem{Base: at, Disp: v * m.kind.bytes}, m.acc[i][v], m.acc[i][v])
		}
		ADDQ(row, at)
	}
	Label("overwrite")
	for i := range m.rows {
		for v := range panelVectors {
			VMOVUPS(m.acc[i][v], Mem{Base: c, Disp: v * m.kind.bytes})
		}
		ADDQ(row, c)
	}
	end()
}
