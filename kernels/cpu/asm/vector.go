package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/gotypes"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// vectorFloats is how many floats a YMM register has.
const vectorFloats = 8

// registers is the kind of vector registers that functions are emitted for.
var registers = ymm

// floats is how many a vector has.
func floats() int { return registers.bytes / 4 }

func wide() bool { return registers.bytes == zmm.bytes }

func vector() reg.VecVirtual { return registers.make() }

// named is the name of a function with that of its instruction set.
func named(name string) string {
	if wide() {
		return name + "AVX512"
	}
	return name + "AVX2"
}

// inBoth emits functions for both kinds of registers.
func inBoth(emit func()) {
	emit()
	registers = zmm
	emit()
	registers = ymm
}

var constants = map[uint32]Mem{}

// constant is x eight times in read-only memory.
func constant(x float32) Mem {
	bits := math.Float32bits(x)
	if m, ok := constants[bits]; ok {
		return m
	}
	m := GLOBL(fmt.Sprintf("f32_%08x", bits), 8|16) // RODATA, NOPTR
	for i := range vectorFloats {
		DATA(4*i, U32(bits))
	}
	constants[bits] = m
	return m
}

// filled is a vector of x.
func filled(x float32) reg.VecVirtual {
	v := vector()
	if wide() {
		VBROADCASTSS(constant(x), v)
	} else {
		VMOVUPS(constant(x), v)
	}
	return v
}

// with gives one of two forms of an instruction whose first operand is a constant: wide ones
// spread it themselves.
func with(x float32, narrow func(...Op), spread func(...Op), operands ...Op) {
	if wide() {
		narrow = spread
	}
	narrow(append([]Op{constant(x)}, operands...)...)
}

var maskTable Mem

// masks is eight words of ones and eight of zeros: the mask for the first n lanes
// starts at word 8-n.
func masks() Mem {
	if maskTable.Base == nil {
		maskTable = GLOBL("masks", 8|16)
		for i := range 2 * vectorFloats {
			bits := U32(0)
			if i < vectorFloats {
				bits = math.MaxUint32
			}
			DATA(4*i, bits)
		}
	}
	return maskTable
}

// lanes is the access of a loop body to its current vector of each slice. Under a mask
// the lanes past the end read as zero and are not written.
type lanes struct {
	offset reg.Register
	disp   int          // bytes to add to offset
	mask   reg.Register // nil inside the slices
}

func (l lanes) at(base reg.Register) Mem {
	return Mem{Base: base, Index: l.offset, Scale: 1, Disp: l.disp}
}

// halves is at for a slice of as many numbers of two bytes.
func (l lanes) halves(base reg.Register) Mem {
	offset := GP64()
	MOVQ(l.offset, offset)
	SHRQ(Imm(1), offset)
	return Mem{Base: base, Index: offset, Scale: 1, Disp: l.disp / 2}
}

func (l lanes) load(base reg.Register) reg.VecVirtual {
	v := vector()
	switch {
	case l.mask == nil:
		VMOVUPS(l.at(base), v)
	case wide():
		VMOVUPS_Z(l.at(base), l.mask, v)
	default:
		VMASKMOVPS(l.at(base), l.mask, v)
	}
	return v
}

func (l lanes) store(v reg.VecVirtual, base reg.Register) {
	switch {
	case l.mask == nil:
		VMOVUPS(v, l.at(base))
	case wide():
		VMOVUPS(v, l.mask, l.at(base))
	default:
		VMASKMOVPS(v, l.mask, l.at(base))
	}
}

// drop sets the lanes past the end to zero.
func (l lanes) drop(v reg.VecVirtual) {
	switch {
	case l.mask == nil:
	case wide():
		VMOVAPS_Z(v, l.mask, v)
	default:
		VANDPS(l.mask, v, v)
	}
}

// replace sets the lanes past the end to those of other.
func (l lanes) replace(v, other reg.VecVirtual) {
	switch {
	case l.mask == nil:
	case wide():
		VBLENDMPS(v, other, l.mask, v)
	default:
		VBLENDVPS(l.mask, v, other, v)
	}
}

// begin starts a function and says what it computes.
func begin(name, signature, doc string) {
	TEXT(name, 4, signature) // NOSPLIT
	Doc(name + " " + doc)
}

// slice loads the base of a slice argument.
func slice(name string) reg.Register { return Load(Param(name).Base(), GP64()) }

// scalar broadcasts a float argument.
func scalar(name string) reg.VecVirtual {
	v := vector()
	VBROADCASTSS(argument(Param(name)), v)
	return v
}

// argument is where an argument lies in memory.
func argument(of gotypes.Component) Mem {
	m, err := of.Resolve()
	if err != nil {
		panic(err)
	}
	return m.Addr
}

// loop emits body for all whole vectors of the slice `length` and once for the rest.
func loop(length string, body func(l lanes)) { pass("", length, body) }

// pass is one of several loops of a function; name sets their labels apart.
func pass(name, length string, body func(l lanes)) {
	unrolled(name, length, 1, func(l lanes, _ int) { body(l) })
}

// unrolled is a pass with `times` vectors in each round; body gets the number of the vector
// within its round.
func unrolled(name, length string, times int, body func(l lanes, k int)) {
	span(name, Load(Param(length).Len(), GP64()), times, body)
}

// span is unrolled over n floats, which it counts down.
func span(name string, n reg.Register, times int, body func(l lanes, k int)) {
	offset := GP64()
	XORQ(offset, offset)
	if times > 1 {
		rounds(name+"many", n, offset, times, body)
	}
	rounds(name+"whole", n, offset, 1, body)
	TESTQ(n, n)
	JZ(LabelRef(name + "end"))
	body(lanes{offset: offset, mask: firstLanes(n)}, 0)
	Label(name + "end")
}

// rounds emits body for `times` vectors a round while n floats are enough for one.
func rounds(label string, n, offset reg.Register, times int, body func(l lanes, k int)) {
	Label(label)
	CMPQ(n, U32(times*floats()))
	JL(LabelRef(label + "Done"))
	for k := range times {
		body(lanes{offset: offset, disp: 4 * floats() * k}, k)
	}
	ADDQ(U32(times*4*floats()), offset)
	SUBQ(U32(times*floats()), n)
	JMP(LabelRef(label))
	Label(label + "Done")
}

// accumulators are sums that a reduction adds to in turn, because an addition takes as
// long as several loads.
type accumulators [4]reg.VecVirtual

func zeros() (a accumulators) {
	for k := range a {
		a[k] = zero()
	}
	return a
}

// total adds up the accumulators and their lanes in a fixed order.
func (a accumulators) total() reg.Register {
	VADDPS(a[1], a[0], a[0])
	VADDPS(a[3], a[2], a[2])
	VADDPS(a[2], a[0], a[0])
	return fold(a[0])
}

// firstLanes is the mask of the first n lanes, of less than all.
func firstLanes(n reg.Register) reg.Register {
	if wide() {
		all, bits, mask := GP32(), GP32(), K()
		MOVL(U32(math.MaxUint32), all)
		BZHIL(n.(reg.GPVirtual).As32(), all, bits)
		KMOVW(bits, mask)
		return mask
	}
	table, mask, back := GP64(), YMM(), GP64()
	LEAQ(masks().Offset(4*vectorFloats), table)
	MOVQ(n, back)
	NEGQ(back)
	VMOVUPS(Mem{Base: table, Index: back, Scale: 4}, mask)
	return mask
}

func zero() reg.VecVirtual {
	v := vector()
	if wide() {
		VPXORD(v, v, v)
	} else {
		VXORPS(v, v, v)
	}
	return v
}

// halved joins the halves of a wide vector, the lower one first in the operation.
func halved(v reg.VecVirtual, join func(...Op)) reg.VecVirtual {
	if !wide() {
		return v
	}
	high := YMM()
	VEXTRACTF64X4(Imm(1), v, high)
	join(v.AsY(), high, high)
	return high
}

// fold adds the lanes of v in a fixed order and gives an XMM with the sum.
func fold(v reg.VecVirtual) reg.Register {
	v = halved(v, VADDPS)
	high := XMM()
	low := v.AsX()
	VEXTRACTF128(Imm(1), v, high)
	VADDPS(low, high, high)
	VMOVHLPS(high, high, low)
	VADDPS(low, high, high)
	VMOVSHDUP(high, low)
	VADDSS(low, high, high)
	return high
}

// end returns.
func end() {
	VZEROUPPER()
	RET()
}
