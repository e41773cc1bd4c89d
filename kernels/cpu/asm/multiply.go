package main

import (
	"fmt"
	"math/bits"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pnode/kernels/cpu/asm/formula"
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

const depthUnroll = 8 // steps of K in a round of the loop; cpu.tileRound

// askOfC says when a micro-kernel asks for the rows of C, which are far apart in memory.
type askOfC int

const (
	askFirst askOfC = iota // all before a tile begins
	// askLast asks for a row in each of the last rounds of K. A tile with more of A and B than the
	// first cache holds would push out there what was asked for at its start. It takes instructions
	// in every round, for which only those with few loads for a multiply-add have time.
	askLast
)

// micro is a micro-kernel, and its state while it is generated.
type micro struct {
	rows    int
	vectors int // in a row of B
	kind    vectorKind
	ask     askOfC
	// nextLines is how many lines a round asks for at next, which is 64 times this as
	// cpu.microKernel.asks. In matrix products it is as long as NextStep where they are large, so
	// that none of the next panel is left out.
	nextLines int
	// packs makes a micro-kernel of one tile, whose A is read where it is and packed beside. The
	// stores cost nothing beside the multiply-adds; nor does the wait for memory, because it asks
	// for what comes Ahead bytes later.
	packs bool
	// pairs makes a micro-kernel whose elements of A and B are pairs of BF16 numbers, neighbours in K.
	// A pair is as large as a float, and is moved like one.
	pairs bool

	acc        [][]reg.VecVirtual // [rows][vectors]
	a          []reg.Register     // pointers to rows 0, 3, 6, ...
	aRow, aCol reg.Register       // strides in bytes
	b          reg.Register
	c, cRow    reg.Register
	count      reg.Register // tiles left
	next       reg.Register // what is asked for in the next round
	cNext      reg.Register // the row of C that is, with askLast; before C: its first one
	packed     reg.Register // where the next step's elements of A are written
	tile       reg.Register
}

// multiply emits the micro-kernel. All sums stay in registers; each step of K loads the vectors
// of B, and is a broadcast and their FMAs for each row of A. It goes down a column of tiles: B
// stays in the nearest caches, A streams by. One that packs computes one tile.
func (m micro) multiply() {
	name := fmt.Sprintf("%dx%d", m.rows, m.vectors*m.kind.bytes/4)
	if m.pairs {
		name = "Pairs" + name
	}
	if m.packs {
		begin("multiplyPack"+name, "func(t *byte)", "is multiply"+name+" of one tile, whose A it packs.")
	} else {
		of := ""
		if m.pairs {
			of = " for pairs of BF16 numbers"
		}
		begin("multiply"+name, "func(t *byte)", fmt.Sprintf("is the micro-kernel of %d rows and %d columns%s.", m.rows, m.vectors*m.kind.bytes/4, of))
	}
	m.load()
	Label("tile")
	m.start()
	m.depth()
	m.store()
	if !m.packs {
		m.nextTile()
		JMP(LabelRef("tile"))
		Label("end")
	}
	end()
}

// load takes what all tiles have in common from the tile.
func (m *micro) load() {
	m.tile = Load(Param("t"), GP64())
	m.aRow, m.aCol = m.field(formula.TileARow), m.field(formula.TileACol)
	SHLQ(Imm(2), m.aRow)
	SHLQ(Imm(2), m.aCol)
	m.c, m.cRow = m.field(formula.TileC), m.field(formula.TileCRow)
	SHLQ(Imm(2), m.cRow)
	if m.packs {
		m.packed = m.field(formula.TilePacked)
	} else {
		m.count = m.field(formula.TileCount)
	}
	m.next = m.field(formula.TileNext)
	m.a, m.b = []reg.Register{GP64()}, GP64()
	MOVQ(Mem{Base: m.tile, Disp: formula.TileA}, m.a[0])
	for i := 3; i < m.rows; i += 3 {
		m.a = append(m.a, GP64())
	}
}

func (m *micro) field(offset int) reg.Register {
	r := GP64()
	MOVQ(Mem{Base: m.tile, Disp: offset}, r)
	return r
}

// start points at the tile's rows of A, with askFirst asks for its rows of C, and sets the sums.
func (m *micro) start() {
	for i := 1; i < len(m.a); i++ {
		LEAQ(Mem{Base: m.a[i-1], Index: m.aRow, Scale: 2}, m.a[i])
		ADDQ(m.aRow, m.a[i])
	}
	MOVQ(Mem{Base: m.tile, Disp: formula.TileB}, m.b)
	if m.ask == askFirst {
		c := GP64()
		MOVQ(m.c, c)
		for range m.rows {
			m.askRow(c)
			ADDQ(m.cRow, c)
		}
	}
	init := m.field(formula.TileInit)
	m.acc = nil
	for i := range m.rows {
		var row []reg.VecVirtual
		for v := range m.vectors {
			acc := m.kind.make()
			if i == 0 {
				VMOVUPS(Mem{Base: init, Disp: v * m.kind.bytes}, acc)
			} else { // costs no load, while the first A and B wait for theirs
				VMOVAPS(m.acc[0][v], acc)
			}
			row = append(row, acc)
		}
		m.acc = append(m.acc, row)
	}
}

// depth adds the K products of each element. Where A is packed, or its rows are, the
// elements of a round have fixed places, so that a step is loads and FMAs alone: a core
// that runs two threads feels every instruction.
func (m *micro) depth() {
	k := m.field(formula.TileK)
	if m.ask == askLast {
		m.beforeC(k)
	}
	CMPQ(m.aCol, Imm(4))
	if m.packs {
		JNE(LabelRef("strided"))
	} else {
		JEQ(LabelRef("rows"))
		CMPQ(m.aRow, Imm(4))
		JNE(LabelRef("strided"))
		CMPQ(m.aCol, Imm(uint64(4*m.rows)))
		JNE(LabelRef("strided"))
		m.rounds("packed", k, 4*m.rows, func(u, i int) Mem { return Mem{Base: m.a[i/3], Disp: 4 * (u*m.rows + i%3)} })
	}
	m.rounds("rows", k, 4, func(u, i int) Mem { return m.row(i).Offset(4 * u) })
	m.rounds("strided", k, 0, func(_, i int) Mem { return m.row(i) })
	Label("single")
	TESTQ(k, k)
	JZ(LabelRef("store"))
	m.step(0, m.row)
	m.advance()
	m.advanceB(1)
	DECQ(k)
	JMP(LabelRef("single"))
}

// askRow asks for a tile's row of C, which need not be aligned.
func (m *micro) askRow(c reg.Register) {
	for v := range m.vectors + 1 {
		PREFETCHT0(Mem{Base: c, Disp: min(v*m.kind.bytes, m.vectors*m.kind.bytes-4)})
	}
}

// beforeC sets cNext as many rows before C as there are rounds of K more than rows, at least 0.
func (m *micro) beforeC(k reg.Register) {
	none := GP64()
	XORQ(none, none)
	m.cNext = GP64()
	MOVQ(k, m.cNext)
	SHRQ(Imm(uint64(bits.TrailingZeros(depthUnroll))), m.cNext)
	SUBQ(Imm(uint64(m.rows)), m.cNext)
	CMOVQLT(none, m.cNext)
	NEGQ(m.cNext)
	IMULQ(m.cRow, m.cNext)
	ADDQ(m.c, m.cNext)
}

// rounds emits a loop that takes depthUnroll steps at a time, as often as K allows. Element
// i of A in step u is at a(u, i). A step is aCol bytes long; 0: as the tile says.
func (m *micro) rounds(name string, k reg.Register, aCol int, a func(u, i int) Mem) {
	Label(name)
	CMPQ(k, Imm(depthUnroll))
	JL(LabelRef("single"))
	if m.ask == askLast {
		at := GP64()
		MOVQ(m.cNext, at)
		CMPQ(at, m.c)
		CMOVQLT(m.c, at)
		m.askRow(at)
		ADDQ(m.cRow, m.cNext)
	}
	for line := range m.nextLines {
		PREFETCHT1(Mem{Base: m.next, Disp: 64 * line})
	}
	ADDQ(Mem{Base: m.tile, Disp: formula.TileNextStep}, m.next)
	if m.packs && aCol > 0 {
		m.askRowsOfA()
	}
	for u := range depthUnroll {
		if m.packs && aCol == 0 {
			at := m.ahead(m.a[0]) // elements that lie side by side
			PREFETCHT1(Mem{Base: at})
			PREFETCHT1(Mem{Base: at, Disp: 4*m.rows - 4})
		}
		m.step(u, func(i int) Mem { return a(u, i) })
		if aCol == 0 {
			m.advance()
		}
	}
	for _, p := range m.a {
		if aCol > 0 {
			ADDQ(U32(depthUnroll*aCol), p)
		}
	}
	m.advanceB(depthUnroll)
	SUBQ(Imm(depthUnroll), k)
	JMP(LabelRef(name))
}

// row is where row i of A is at the pointers.
func (m *micro) row(i int) Mem {
	at := Mem{Base: m.a[i/3]}
	if i%3 > 0 {
		at.Index, at.Scale = m.aRow, uint8(i%3)
	}
	return at
}

// advance moves the pointers into A on by a step.
func (m *micro) advance() {
	for _, p := range m.a {
		ADDQ(m.aCol, p)
	}
}

// advanceB moves the pointer into B on, and that to where A is packed.
func (m *micro) advanceB(steps int) {
	ADDQ(U32(steps*m.vectors*m.kind.bytes), m.b)
	if m.packs {
		ADDQ(U32(4*steps*m.rows), m.packed)
	}
}

// askRowsOfA asks for the next elements of each row of A, Ahead bytes on.
func (m *micro) askRowsOfA() {
	var at reg.Register
	for i := range m.rows {
		if i%3 == 0 {
			at = m.ahead(m.a[i/3])
		}
		row := m.row(i)
		row.Base = at
		PREFETCHT1(row)
	}
}

func (m *micro) ahead(p reg.Register) reg.Register {
	at := m.field(formula.TileAhead)
	ADDQ(p, at)
	return at
}

// step adds the products of one row of B, u rows after the pointer.
func (m *micro) step(u int, a func(i int) Mem) {
	var b []reg.VecVirtual
	for v := range m.vectors {
		x := m.kind.make()
		VMOVUPS(Mem{Base: m.b, Disp: (u*m.vectors + v) * m.kind.bytes}, x)
		b = append(b, x)
	}
	for i := range m.rows {
		x := m.kind.make()
		VBROADCASTSS(a(i), x)
		if m.packs {
			VMOVSS(x.AsX(), Mem{Base: m.packed, Disp: 4 * (u*m.rows + i)})
		}
		for v := range m.vectors {
			if m.pairs {
				addPairs(b[v], x, m.acc[i][v])
			} else {
				VFMADD231PS(b[v], x, m.acc[i][v])
			}
		}
	}
}

// store writes the sums, or adds them to C, and moves on to the rows below.
func (m *micro) store() {
	Label("store")
	flag := m.field(formula.TileAccumulate)
	TESTQ(flag, flag)
	JZ(LabelRef("overwrite"))
	at := GP64()
	MOVQ(m.c, at)
	for i := range m.rows {
		for v := range m.vectors {
			VADDPS(Mem{Base: at, Disp: v * m.kind.bytes}, m.acc[i][v], m.acc[i][v])
		}
		ADDQ(m.cRow, at)
	}
	Label("overwrite")
	for i := range m.rows {
		for v := range m.vectors {
			VMOVUPS(m.acc[i][v], Mem{Base: m.c, Disp: v * m.kind.bytes})
		}
		ADDQ(m.cRow, m.c)
	}
}

// nextTile goes to the end, or on to the tile below.
func (m *micro) nextTile() {
	DECQ(m.count)
	JZ(LabelRef("end"))
	step := m.field(formula.TileAStep)
	MOVQ(Mem{Base: m.tile, Disp: formula.TileA}, m.a[0])
	LEAQ(Mem{Base: m.a[0], Index: step, Scale: 4}, m.a[0])
	MOVQ(m.a[0], Mem{Base: m.tile, Disp: formula.TileA})
}
