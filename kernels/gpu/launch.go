package gpu

import (
	"math"
	"slices"

	"pnode/kernels"
)

// Geometry is the shape of work-groups: Side x Side work-items, in kernels of one dimension
// Side*Side. Side is a power of two.
type Geometry struct {
	Side int
	// Matrix adds the kernels that use NVIDIA's matrix units, for which Side is 16.
	Matrix Matrix
	// Unit adds those that use other makers' matrix units, see WithUnit.
	Unit Unit
	// VectorBF16 and VectorF16 leave the products of a half to vector units, though there is a Unit.
	VectorBF16, VectorF16 bool
}

// Matrix is a generation of NVIDIA's matrix units. The zero value is none.
type Matrix uint8

// The generations.
const (
	NoMatrix Matrix = iota
	// Turing's units multiply f16.
	Turing
	// Ampere's, and those behind it, multiply bf16 too.
	Ampere
)

// halves returns the types that the units multiply.
func (m Matrix) halves() []kernels.DType {
	return [...][]kernels.DType{NoMatrix: nil, Turing: {kernels.F16}, Ampere: {kernels.F16, kernels.BF16}}[m]
}

// Multiplies reports whether NVIDIA's matrix units of the geometry multiply operands of a type.
func (g Geometry) Multiplies(dtype kernels.DType) bool {
	return slices.Contains(g.Matrix.halves(), dtype)
}

// Sides are the geometries from the best to the least demanding, without matrix units.
var Sides = [...]Geometry{{Side: 16}, {Side: 8}}

// MatrixUnits is the geometry for devices that have NVIDIA's, TuringUnits for those that have the
// first ones of these.
var MatrixUnits, TuringUnits = Geometry{Side: 16, Matrix: Ampere}, Geometry{Side: 16, Matrix: Turing}

// Group is the number of work-items in a work-group.
func (g Geometry) Group() int { return g.Side * g.Side }

// LocalBytes is the most local memory that a kernel uses: attention's two panels of
// 16 x (tile+4) floats and its tile of weights, or the two panels of the larger product. On
// NVIDIA's matrix units it is a product's two panels of 128 x (32+8) halves, twice, and what
// stands in for such units needs to exchange; attention takes a little less. A Unit's two panels,
// once, are less too.
func (g Geometry) LocalBytes() int {
	if g.Matrix != NoMatrix {
		return 2*4*128*(32+8) + 4*6*g.Group()
	}
	small, large := 4*g.Side, tileSizes[0]*g.Side
	return 4 * max(2*depth*(small+4)+small*(small+4), 2*depth*(large+4))
}

// ArgKind says what an argument is. The zero value is invalid.
type ArgKind uint8

// The kinds. View and Scratch are two parameters of a kernel: a buffer and the number of
// its first element as a 64-bit number.
const (
	_ ArgKind = iota
	// View is Arg.View, NULL and 0 for an absent one.
	View
	// Scratch is the plan's scratch memory from element Arg.Bits on.
	Scratch
	// Fault is the queue's fault word, an int.
	Fault
	// Word is a 32-bit number: an int, an unsigned int or a float.
	Word
	// Long is a 64-bit number.
	Long
)

// Arg is one argument of a kernel.
type Arg struct {
	Kind ArgKind
	View kernels.View
	Bits uint64
}

// Launch is one kernel over a grid of work-groups.
type Launch struct {
	Kernel string
	Groups [3]int // work-groups in each dimension
	Items  [2]int // work-items of a group in the first two dimensions
	Args   []Arg
	Params []Param // what Args are on a stream
}

// Param is one parameter of a kernel: a number of 4 or 8 bytes, little endian. Memory is the
// driver's name of it.
type Param struct {
	Bits  uint64
	Bytes int
}

const wordBytes, longBytes = 4, 8

// array appends the parameters of a range of a buffer.
func (l *Launch) array(m Memory, first uint64) {
	l.Params = append(l.Params, Param{uint64(m), longBytes}, Param{first, longBytes})
}

func (l *Launch) memory(views ...kernels.View) *Launch {
	for _, v := range views {
		l.Args = append(l.Args, Arg{Kind: View, View: v})
	}
	return l
}

// stored gives a view and how its numbers are stored.
func (l *Launch) stored(v kernels.View) *Launch { return l.memory(v).ints(typeOf(v)) }

// The types as base.cl has them.
const (
	typeF32 = iota
	typeBF16
	typeF16
)

// typeOf returns the type of a view's numbers.
func typeOf(v kernels.View) int {
	if !v.Present() {
		return typeF32
	}
	switch v.Buf.DType() {
	case kernels.BF16:
		return typeBF16
	case kernels.F16:
		return typeF16
	default:
		return typeF32
	}
}

func (l *Launch) scratch(first int) *Launch {
	l.Args = append(l.Args, Arg{Kind: Scratch, Bits: uint64(first)})
	return l
}

func (l *Launch) ints(values ...int) *Launch {
	for _, v := range values {
		l.Args = append(l.Args, Arg{Kind: Word, Bits: uint64(uint32(v))})
	}
	return l
}

func (l *Launch) floats(values ...float32) *Launch {
	for _, v := range values {
		l.Args = append(l.Args, Arg{Kind: Word, Bits: uint64(math.Float32bits(v))})
	}
	return l
}

func (l *Launch) longs(values ...uint64) *Launch {
	for _, v := range values {
		l.Args = append(l.Args, Arg{Kind: Long, Bits: v})
	}
	return l
}

// fault gives the fault word and the operation that a bad index is reported as.
func (l *Launch) fault(op kernels.Op) *Launch {
	l.Args = append(l.Args, Arg{Kind: Fault})
	return l.ints(int(op))
}
