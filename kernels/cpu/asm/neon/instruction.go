package main

import (
	"fmt"
	"strings"
)

// Instructions in the order of ARM's manual: what is written comes first. Go's assembler
// lacks most arithmetic on vectors of floats; such an instruction is written as its code,
// with the manual's notation beside it (Arm Architecture Reference Manual, section C7.2).

// op emits an instruction of Go's assembler.
func (f *function) op(name, format string, args ...any) {
	f.body.line("\t%s", strings.TrimSpace(fmt.Sprintf("%-8s"+format, append([]any{name}, args...)...)))
}

func (f *function) label(name string) { f.body.line("%s:", name) }

// code emits an instruction that Go's assembler lacks.
func (f *function) code(word uint32, format string, args ...any) {
	f.body.line("\tWORD    $0x%08x // %s", word, fmt.Sprintf(format, args...))
}

// three emits an instruction on three registers of a shape, two an instruction on two.
func (f *function) three(base uint32, name, shape string, d, n, m vec) {
	f.code(base|uint32(m)<<16|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s, v%d.%s", name, d, shape, n, shape, m, shape)
}

func (f *function) two(base uint32, name, shape string, d, n vec) {
	f.code(base|uint32(n)<<5|uint32(d), "%s v%d.%s, v%d.%s", name, d, shape, n, shape)
}

// Arithmetic on four floats. max and min give NaN when one operand is.
func (f *function) add(d, n, m vec) { f.three(0x4e20d400, "fadd", "4s", d, n, m) }
func (f *function) sub(d, n, m vec) { f.three(0x4ea0d400, "fsub", "4s", d, n, m) }
func (f *function) mul(d, n, m vec) { f.three(0x6e20dc00, "fmul", "4s", d, n, m) }
func (f *function) div(d, n, m vec) { f.three(0x6e20fc00, "fdiv", "4s", d, n, m) }
func (f *function) max(d, n, m vec) { f.three(0x4e20f400, "fmax", "4s", d, n, m) }
func (f *function) min(d, n, m vec) { f.three(0x4ea0f400, "fmin", "4s", d, n, m) }
func (f *function) sqrt(d, n vec)   { f.two(0x6ea1f800, "fsqrt", "4s", d, n) }

// round gives the nearest whole number, ties to even; whole converts to integers so.
func (f *function) round(d, n vec) { f.two(0x4e218800, "frintn", "4s", d, n) }
func (f *function) whole(d, n vec) { f.two(0x4e21a800, "fcvtns", "4s", d, n) }

// fma is d += n*m, fms d -= n*m, rounded once.
func (f *function) fma(d, n, m vec) { f.op("VFMLA", "%v.S4, %v.S4, %v.S4", m, n, d) }
func (f *function) fms(d, n, m vec) { f.op("VFMLS", "%v.S4, %v.S4, %v.S4", m, n, d) }

// fmaLane is d += n*m[lane].
func (f *function) fmaLane(d, n, m vec, lane int) {
	index := uint32(lane&1)<<21 | uint32(lane>>1)<<11
	f.code(0x4f801000|index|uint32(m)<<16|uint32(n)<<5|uint32(d), "fmla v%d.4s, v%d.4s, v%d.s[%d]", d, n, m, lane)
}

// Arithmetic on two float64: wideLow and wideHigh convert two floats of n.
func (f *function) wideAdd(d, n, m vec) { f.three(0x4e60d400, "fadd", "2d", d, n, m) }
func (f *function) wideFMA(d, n, m vec) { f.op("VFMLA", "%v.D2, %v.D2, %v.D2", m, n, d) }
func (f *function) wideLow(d, n vec) {
	f.code(0x0e617800|uint32(n)<<5|uint32(d), "fcvtl v%d.2d, v%d.2s", d, n)
}

func (f *function) wideHigh(d, n vec) {
	f.code(0x4e617800|uint32(n)<<5|uint32(d), "fcvtl2 v%d.2d, v%d.4s", d, n)
}

// total gives the sum of the four floats of n, (0+1)+(2+3), as the lowest one of d.
func (f *function) total(d, n vec) {
	f.three(0x6e20d400, "faddp", "4s", d, n, n)
	f.code(0x7e30d800|uint32(d)<<5|uint32(d), "faddp s%d, v%d.2s", d, d)
}

// wideTotal gives the sum of the two float64 of n.
func (f *function) wideTotal(d, n vec) {
	f.code(0x7e70d800|uint32(n)<<5|uint32(d), "faddp d%d, v%d.2d", d, n)
}

// highest gives the largest of the four floats of n as the lowest one of d.
func (f *function) highest(d, n vec) {
	f.code(0x6e30f800|uint32(n)<<5|uint32(d), "fmaxv s%d, v%d.4s", d, n)
}

// Integers of 32 bits and plain bits.
func (f *function) addInt(d, n, m vec) { f.op("VADD", "%v.S4, %v.S4, %v.S4", m, n, d) }
func (f *function) and(d, n, m vec)    { f.op("VAND", "%v.B16, %v.B16, %v.B16", m, n, d) }
func (f *function) or(d, n, m vec)     { f.op("VORR", "%v.B16, %v.B16, %v.B16", m, n, d) }
func (f *function) xor(d, n, m vec)    { f.op("VEOR", "%v.B16, %v.B16, %v.B16", m, n, d) }
func (f *function) copy(d, n vec)      { f.op("VMOV", "%v.B16, %v.B16", n, d) }
func (f *function) zero(d vec)         { f.xor(d, d, d) }

// choose is d = n where the bits of d are set, else m.
func (f *function) choose(d, n, m vec) { f.op("VBSL", "%v.B16, %v.B16, %v.B16", m, n, d) }

func (f *function) left(d, n vec, bits int)  { f.op("VSHL", "$%d, %v.S4, %v.S4", bits, n, d) }
func (f *function) right(d, n vec, bits int) { f.op("VUSHR", "$%d, %v.S4, %v.S4", bits, n, d) }

// Comparisons set all bits of the lanes where they hold. atLeast compares unsigned.
func (f *function) equalFloat(d, n, m vec) { f.three(0x4e20e400, "fcmeq", "4s", d, n, m) }
func (f *function) atLeast(d, n, m vec)    { f.three(0x6ea03c00, "cmhs", "4s", d, n, m) }

// productLow and productHigh are the products of 64 bits of two unsigned words each.
func (f *function) productLow(d, n, m vec) {
	f.code(0x2ea0c000|uint32(m)<<16|uint32(n)<<5|uint32(d), "umull v%d.2d, v%d.2s, v%d.2s", d, n, m)
}

func (f *function) productHigh(d, n, m vec) {
	f.code(0x6ea0c000|uint32(m)<<16|uint32(n)<<5|uint32(d), "umull2 v%d.2d, v%d.4s, v%d.4s", d, n, m)
}
