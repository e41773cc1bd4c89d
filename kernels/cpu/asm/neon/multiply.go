package main

import "pnode/kernels/cpu/asm/formula"

// The micro-kernel's tile: its 24 vectors of sums, with three of B and two of A, take 29
// of the 32 registers.
const (
	tileRows    = 8
	tileVectors = 3
	depthUnroll = 4 // steps of K in a round of the loop
)

// micro is the state of the micro-kernel while it is generated.
type micro struct {
	*function
	tile       reg
	k          reg
	a          [tileRows]reg // pointers to rows; packed A needs the first
	aRow, aCol reg           // strides in bytes
	b          reg
	c, cRow    reg
	count      reg // tiles left
	at         reg
	vectorB    [tileVectors]vec
	vectorA    [2]vec
	sums       [tileRows][tileVectors]vec
}

// multiply emits the micro-kernel. All sums stay in registers, and each gets its products
// one by one in the order of K. A step of K is 24 multiply-adds of four floats beside 2
// loads of B and, where a column of A lies together, 1 of A; the loop adds 4 for each 4
// steps: 192 operations in 28 instructions. Otherwise each float of A is loaded into all
// lanes: 192 in 35. It goes down a column of tiles: B stays in the first cache, A streams by.
func multiply(s *source) {
	m := &micro{function: s.begin("multiply8x12", "func(t *byte)", "is the micro-kernel of 8 rows and 12 columns.")}
	m.take()
	m.arguments()
	m.label("tile")
	m.start()
	m.op("CMP", "$4, %v", m.aRow)
	m.op("BNE", "apart")
	m.depth("packed", 1, m.stepPacked)
	m.op("B", "store")
	m.label("apart")
	m.pointAtRows()
	m.depth("strided", 1, m.stepStrided)
	m.label("store")
	m.store()
	m.nextTile()
	m.end()
}

// take gives every part its register.
func (m *micro) take() {
	m.tile = m.integer("t")
	for _, r := range []*reg{&m.k, &m.aRow, &m.aCol, &m.b, &m.c, &m.cRow, &m.count, &m.at} {
		*r = m.reg()
	}
	for i := range m.a {
		m.a[i] = m.reg()
	}
	for i := range m.vectorB {
		m.vectorB[i] = m.vec()
	}
	for i := range m.vectorA {
		m.vectorA[i] = m.vec()
	}
	for i := range m.sums {
		for j := range m.sums[i] {
			m.sums[i][j] = m.vec()
		}
	}
}

func (m *micro) field(to reg, offset int) { m.op("MOVD", "%d(%v), %v", offset, m.tile, to) }

// arguments loads what tiles have in common.
func (m *micro) arguments() {
	for _, field := range []struct {
		to     reg
		offset int
	}{{m.aRow, formula.TileARow}, {m.aCol, formula.TileACol}, {m.cRow, formula.TileCRow}} {
		m.field(field.to, field.offset)
		m.op("LSL", "$2, %v, %v", field.to, field.to)
	}
	m.field(m.c, formula.TileC)
	m.field(m.count, formula.TileCount)
}

// point points at the tile's A and B and at what its sums begin with.
func (m *micro) point() {
	m.field(m.a[0], formula.TileA)
	m.field(m.b, formula.TileB)
	m.field(m.k, formula.TileK)
	m.field(m.at, formula.TileInit)
}

// pointAtRows points at all rows of A, from the first one on.
func (m *micro) pointAtRows() {
	for i := 1; i < tileRows; i++ {
		m.op("ADD", "%v, %v, %v", m.aRow, m.a[i-1], m.a[i])
	}
}

// start points at the tile's operands and sets the sums.
func (m *micro) start() {
	m.point()
	m.row(m.sums[0], m.at, 0)
	for _, row := range m.sums[1:] {
		for j, sum := range row {
			m.copy(sum, m.sums[0][j])
		}
	}
}

// row loads 12 floats.
func (m *micro) row(to [tileVectors]vec, at reg, disp int) {
	m.op("FLDPQ", "%d(%v), (F%d, F%d)", disp, at, to[0], to[1])
	m.op("FMOVQ", "%d(%v), F%d", disp+32, at, to[2])
}

// depth adds the products of each element, as many steps of K at a time as make a unit, and leaves in k how many
// are left then.
func (m *micro) depth(name string, unit int, step func(u int)) {
	for _, times := range []int{depthUnroll, unit} {
		label := name
		if times == unit {
			label += "Rest"
		}
		m.op("CMP", "$%d, %v", times, m.k)
		m.op("BLT", "%sDone", label)
		m.label(label)
		for u := 0; u < times; u += unit {
			step(u)
		}
		m.op("ADD", "$%d, %v", times*4*vectorFloats*tileVectors, m.b)
		m.op("SUB", "$%d, %v", times, m.k)
		m.op("CMP", "$%d, %v", times, m.k)
		m.op("BGE", "%s", label)
		m.label(label + "Done")
	}
}

// stepPacked adds the products of row u of B and a column of A that lies together.
func (m *micro) stepPacked(u int) {
	m.op("VLD1.P", "(%v)(%v), [%v.S4, %v.S4]", m.a[0], m.aCol, m.vectorA[0], m.vectorA[1])
	m.row(m.vectorB, m.b, u*4*vectorFloats*tileVectors)
	for i, row := range m.sums {
		for j, sum := range row {
			m.fmaLane(sum, m.vectorB[j], m.vectorA[i/vectorFloats], i%vectorFloats)
		}
	}
}

// stepStrided is stepPacked for an A whose rows are anywhere.
func (m *micro) stepStrided(u int) {
	m.row(m.vectorB, m.b, u*4*vectorFloats*tileVectors)
	for i, row := range m.sums {
		a := m.vectorA[i%len(m.vectorA)]
		m.op("VLD1R.P", "(%v)(%v), [%v.S4]", m.a[i], m.aCol, a)
		for j, sum := range row {
			m.fma(sum, m.vectorB[j], a)
		}
	}
}

// store writes the sums, or adds them to C, and moves on to the rows below.
func (m *micro) store() {
	m.field(m.at, formula.TileAccumulate)
	m.op("CBZ", "%v, overwrite", m.at)
	m.op("MOVD", "%v, %v", m.c, m.at)
	for _, row := range m.sums {
		m.row(m.vectorB, m.at, 0)
		for j, sum := range row {
			m.add(sum, sum, m.vectorB[j])
		}
		m.op("ADD", "%v, %v", m.cRow, m.at)
	}
	m.label("overwrite")
	for _, row := range m.sums {
		m.op("FSTPQ", "(F%d, F%d), (%v)", row[0], row[1], m.c)
		m.op("FMOVQ", "F%d, 32(%v)", row[2], m.c)
		m.op("ADD", "%v, %v", m.cRow, m.c)
	}
}

// nextTile goes on to the tile below if there is one.
func (m *micro) nextTile() {
	m.op("SUB", "$1, %v", m.count)
	m.op("CBZ", "%v, end", m.count)
	m.field(m.at, formula.TileAStep)
	m.field(m.a[0], formula.TileA)
	m.op("ADD", "%v<<2, %v", m.at, m.a[0])
	m.op("MOVD", "%v, %d(%v)", m.a[0], formula.TileA, m.tile)
	m.op("B", "tile")
	m.label("end")
}

// peakChains is how many sums peak keeps: more than the latency of a multiply-add times
// the number of units that do it.
const peakChains = 24

func peak(s *source) {
	f := s.begin("peakNEON", "func(rounds int)", "does 24 multiply-adds of four floats a round, which depend on nothing but the one a round before.")
	f.peak(f.fma)
}

// peak emits a loop of nothing but additions of products in registers.
func (f *function) peak(add func(d, n, m vec)) {
	rounds := f.integer("rounds")
	var sums []vec
	for range peakChains + 1 {
		v := f.vec()
		f.zero(v)
		sums = append(sums, v)
	}
	factor := sums[peakChains]
	f.label("round")
	for _, v := range sums[:peakChains] {
		add(v, factor, factor)
	}
	f.op("SUB", "$1, %v", rounds)
	f.op("CBNZ", "%v, round", rounds)
	f.end()
}
