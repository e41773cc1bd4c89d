package main

import "fmt"

// pairs emits the micro-kernel of BF16 numbers and its packing. An element is a pair of them, as large
// as a float, with the even number of K in the lower half.
func pairs(s *source) {
	multiplyPairs(s)
	multiplySquares(s)
	for _, unit := range []int{tileRows, vectorFloats * tileVectors} {
		pairRows(s, unit, 1)
		pairRows(s, unit, groupPanels)
		squares(s, unit)
	}
	peakPairs(s)
}

// addPairs adds to each lane of d the products of a pair of n and one of m. addSquares adds those of two rows of
// two pairs in n and two columns of two in m to the four sums of d, row by row, as addPairs would add the first pairs and
// then the second ones.
func (f *function) addPairs(d, n, m vec) {
	f.code(0x6e40fc00|uint32(m)<<16|uint32(n)<<5|uint32(d), "bfdot v%d.4s, v%d.8h, v%d.8h", d, n, m)
}

func (f *function) addSquares(d, n, m vec) {
	f.code(0x6e40ec00|uint32(m)<<16|uint32(n)<<5|uint32(d), "bfmmla v%d.4s, v%d.8h, v%d.8h", d, n, m)
}

// zip gives the lanes of n and m in turns, those of the lower halves and those of the upper ones. high may be n or m.
func (f *function) zip(lanes string, low, high, n, m vec) {
	for i, d := range []vec{low, high} {
		f.op(fmt.Sprintf("VZIP%d", i+1), "%v.%s, %v.%s, %v.%s", m, lanes, n, lanes, d, lanes)
	}
}

// pairMicro is micro for pairs. While it multiplies, rows[r] has two pairs of each of the rows 2*r and 2*r+1 of A,
// and sums[2*r+h][j] the sums of these rows and of the columns 4*j+2*h and 4*j+2*h+1. The columns take turns in spare.
type pairMicro struct {
	*micro
	rows   [tileRows / 2]vec
	spare  [3]vec
	second [2]vec // column of a packed A
}

// multiplyPairs emits multiply for pairs. Two steps of K are 24 instructions that add 16 products each, beside
// 10 that put operands in their order and as many loads. What is left of an odd K is added to the sums when they are
// rows. An A that is not packed has the pairs of a row beside each other.
func multiplyPairs(s *source) {
	m := newPairMicro(s, "multiplyPairs8x12", "is the micro-kernel of 8 rows and 12 columns of pairs.")
	m.tiles(func() {
		m.op("CMP", "$4, %v", m.aRow)
		m.op("BNE", "apart")
		m.depth("packed", 2, func(u int) {
			m.loadPacked()
			m.addSteps(u)
		})
		m.op("B", "rows")
		m.label("apart")
		m.pointAtRows()
		m.depth("strided", 2, func(u int) {
			m.loadRows()
			m.addSteps(u)
		})
		m.label("rows")
	})
}

// multiplySquares emits multiplyPairs for panels that squares has put in order: 24 instructions beside 5 loads. By LLVM's
// models of Neoverse N2, V1 and V2 it takes 0.71 of the time.
func multiplySquares(s *source) {
	m := newPairMicro(s, "multiplySquares8x12", "is multiplyPairs8x12 for panels of squares.")
	m.tiles(func() {
		m.depth("square", 2, func(u int) {
			for r := 0; r < len(m.rows); r += 2 {
				m.op("FLDPQ.P", "%d(%v), (F%d, F%d)", 2*4*vectorFloats, m.a[0], m.rows[r], m.rows[r+1])
			}
			for j := range tileVectors {
				columns := m.spare[:2]
				m.op("FLDPQ", "%d(%v), (F%d, F%d)", (u*tileVectors+2*j)*4*vectorFloats, m.b, columns[0], columns[1])
				m.addColumns(j, columns)
			}
		})
	})
}

func newPairMicro(s *source, name, doc string) *pairMicro {
	m := &pairMicro{micro: &micro{function: s.begin(name, "func(t *byte)", doc)}}
	m.take()
	m.second = [2]vec{m.vec(), m.vec()}
	m.rows = [...]vec{m.vectorB[0], m.second[0], m.vectorB[1], m.second[1]}
	m.spare = [...]vec{m.vectorA[0], m.vectorA[1], m.vectorB[2]}
	m.arguments()
	return m
}

// tiles emits all but what adds two steps of K at a time to the sums of a tile.
func (m *pairMicro) tiles(addTwos func()) {
	m.label("tile")
	m.startTwos()
	addTwos()
	m.sumsToRows(m.second[0])
	m.op("CBZ", "%v, store", m.k)
	m.addLast()
	m.label("store")
	m.store()
	m.nextTile()
	m.end()
}

// startTwos is start for sums two by two.
func (m *pairMicro) startTwos() {
	m.point()
	m.row(m.vectorB, m.at, 0)
	for i, row := range m.sums {
		for j, sum := range row {
			m.op(fmt.Sprintf("VZIP%d", i%2+1), "%v.D2, %v.D2, %v.D2", m.vectorB[j], m.vectorB[j], sum)
		}
	}
}

// loadPacked loads the rows from two steps of a packed A, which lie together.
func (m *pairMicro) loadPacked() {
	first, second := m.vectorA, m.second
	for _, step := range [][2]vec{first, second} {
		m.op("VLD1.P", "(%v)(%v), [%v.S4, %v.S4]", m.a[0], m.aCol, step[0], step[1])
	}
	for half := range first {
		m.zip("S4", m.rows[2*half], m.rows[2*half+1], first[half], second[half])
	}
}

// loadRows loads the rows from where they are.
func (m *pairMicro) loadRows() {
	for r, v := range m.rows {
		m.op("FMOVD.P", "8(%v), F%d", m.a[2*r], v)
		m.op("VLD1.P", "8(%v), %v.D[1]", m.a[2*r+1], v)
	}
}

// addSteps adds the products of the rows and of the steps u and u+1 of B.
func (m *pairMicro) addSteps(u int) {
	const step = 4 * vectorFloats * tileVectors
	for j := range tileVectors {
		even, odd, columns := m.spare[0], m.spare[1], m.spare[2]
		for i, v := range []vec{even, odd} {
			m.op("FMOVQ", "%d(%v), F%d", (u+i)*step+4*vectorFloats*j, m.b, v)
		}
		m.zip("S4", columns, even, even, odd)
		m.addColumns(j, []vec{columns, even})
	}
}

// addColumns adds the products of the rows and of four columns, two by two.
func (m *pairMicro) addColumns(j int, columns []vec) {
	for half, two := range columns {
		for r, row := range m.rows {
			m.addSquares(m.sums[2*r+half][j], row, two)
		}
	}
}

// sumsToRows orders the sums as micro has them, with a register to spare.
func (m *pairMicro) sumsToRows(spare vec) {
	for r := 0; r < tileRows; r += 2 {
		for j := range tileVectors {
			left, right := m.sums[r][j], m.sums[r+1][j]
			m.zip("D2", spare, right, left, right)
			m.sums[r][j], spare = spare, left
		}
	}
}

// addLast adds the products of one step.
func (m *pairMicro) addLast() {
	m.pointAtRows()
	m.row(m.vectorB, m.b, 0)
	for i, row := range m.sums {
		a := m.vectorA[i%len(m.vectorA)]
		m.op("VLD1R", "(%v), [%v.S4]", m.a[i], a)
		for j, sum := range row {
			m.addPairs(sum, m.vectorB[j], a)
		}
	}
}

// pairRows emits dst[i*step+p*unit+j] = the pair of src[2*p*stride+i*unit+j] and
// src[(2*p+1)*stride+i*unit+j] for i < panels, j < unit and p < k: panels of `unit` columns each.
func pairRows(s *source, unit, panels int) {
	f := s.begin(fmt.Sprintf("pairRows%dx%d", panels, unit), "func(dst *float32, src *uint16, step, stride, k int)",
		fmt.Sprintf("writes dst[i*step+p*%d+j] = the pair of src[2*p*stride+i*%d+j] and src[(2*p+1)*stride+i*%d+j] for i < %d, j < %d and p < k.", unit, unit, unit, panels, unit))
	to := []reg{f.integer("dst")}
	even, step, stride, k, odd := f.integer("src"), f.stride("step"), f.integer("stride"), f.integer("k"), f.reg()
	for i := 1; i < panels; i++ {
		to = append(to, f.reg())
		f.op("ADD", "%v, %v, %v", step, to[i-1], to[i])
	}
	f.label("pair")
	f.op("CBZ", "%v, end", k)
	f.op("ADD", "%v<<1, %v, %v", stride, even, odd)
	for i, dst := range to {
		for at := 0; at < unit; at += 2 * vectorFloats {
			f.scoped(func() { f.pairColumns(dst, even, odd, 2*(i*unit+at), min(2, (unit-at)/vectorFloats)) })
		}
	}
	f.op("ADD", "%v<<2, %v", stride, even)
	f.op("SUB", "$1, %v", k)
	f.op("B", "pair")
	f.label("end")
	f.end()
}

// pairColumns writes one or two vectors of pairs and moves on in dst.
func (f *function) pairColumns(dst, even, odd reg, disp, vectors int) {
	move := []string{"FMOVD", "FMOVQ"}[vectors-1]
	low, high, first := f.vec(), f.vec(), f.vec()
	f.op(move, "%d(%v), F%d", disp, even, low)
	f.op(move, "%d(%v), F%d", disp, odd, high)
	f.op("VZIP1", "%v.H8, %v.H8, %v.H8", high, low, first)
	f.op("FMOVQ.P", "F%d, %d(%v)", first, 4*vectorFloats, dst)
	if vectors == 2 {
		f.op("VZIP2", "%v.H8, %v.H8, %v.H8", high, low, high)
		f.op("FMOVQ.P", "F%d, %d(%v)", high, 4*vectorFloats, dst)
	}
}

// squares emits the order in which multiplySquares reads a panel: of each two steps of K the pairs of a row or column
// stand together.
func squares(s *source, unit int) {
	f := s.begin(fmt.Sprintf("squares%d", unit), "func(panel *float32, twos int)", "exchanges x[i*2*unit+h*unit+j] for x[i*2*unit+2*j+h], for h < 2, j < unit and i < twos.")
	at, twos := f.integer("panel"), f.integer("twos")
	f.label("two")
	f.op("CBZ", "%v, end", twos)
	var x []vec
	for i := range 2 * unit / vectorFloats {
		v := f.vec()
		f.op("FMOVQ", "%d(%v), F%d", 4*vectorFloats*i, at, v)
		x = append(x, v)
	}
	low, half := f.vec(), len(x)/2
	for i := range half {
		f.zip("S4", low, x[i], x[i], x[half+i])
		for _, v := range []vec{low, x[i]} {
			f.op("FMOVQ.P", "F%d, %d(%v)", v, 4*vectorFloats, at)
		}
	}
	f.op("SUB", "$1, %v", twos)
	f.op("B", "two")
	f.label("end")
	f.end()
}

// peakPairs emits peak for pairs.
func peakPairs(s *source) {
	f := s.begin("peakPairsNEON", "func(rounds int)", "is peakNEON with 16 multiply-adds of BF16 numbers in place of four of floats.")
	f.peak(f.addSquares)
}
