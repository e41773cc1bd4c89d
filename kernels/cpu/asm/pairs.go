package main

import (
	"encoding/binary"
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/ir"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// addPairs emits VDPBF16PS for wide registers: each float of sum gets the products of a pair of BF16
// numbers of x and one of y, those of the upper halves first.
func addPairs(y, x, sum reg.VecVirtual) {
	encode(encoded{name: "VDPBF16PS", opcode: 0x52}, []Op{y, x, sum}, sum)
}

// nearestBF16 emits VCVTNEPS2BF16 of a wide register: it rounds to the nearest BF16, ties to even, numbers
// below the smallest normal one to zero.
func nearestBF16(x reg.VecVirtual) reg.VecVirtual {
	out := YMM()
	encode(encoded{name: "VCVTNEPS2BF16", opcode: 0x72}, []Op{x}, out)
	return out
}

// encode emits an instruction of AVX512_BF16, which neither avo nor Go's assembler knows.
func encode(code encoded, inputs []Op, out Op) {
	i := &ir.Instruction{Opcode: "LONG", Inputs: inputs, Outputs: []Op{out}, ISA: []string{"AVX512_BF16"}}
	code.Constant, code.of = U32(0), i
	i.Operands = []Op{code}
	Instruction(i)
}

// encoded is the code of an instruction, whose registers are known when it is written.
type encoded struct {
	Constant // for avo, which takes its own kinds of operands only
	of       *ir.Instruction
	name     string
	opcode   byte
}

// Asm encodes EVEX.512.F3.0F38.W0 opcode /r (Intel's manual, volume 2A, section 2.7). Numbers of registers
// have five bits; the prefix holds those that ModRM has no room for, inverted. An input that is not there
// is 0.
func (c encoded) Asm() string {
	numbers, text := [3]byte{}, ""
	for i, at := range []struct {
		of []Op
		k  int
	}{{c.of.Inputs, 0}, {c.of.Inputs, 1}, {c.of.Outputs, 0}} {
		if at.k < len(at.of) {
			numbers[i] = byte(at.of[at.k].(reg.Register).(reg.Physical).PhysicalIndex())
			text += fmt.Sprintf(", Z%d", numbers[i])
		}
	}
	y, x, out := numbers[0], numbers[1], numbers[2]
	inverted := func(n, bit byte) byte { return ^n >> bit & 1 }
	code := []byte{
		0x62,
		inverted(out, 3)<<7 | inverted(y, 4)<<6 | inverted(y, 3)<<5 | inverted(out, 4)<<4 | 2,
		^x&0xf<<3 | 1<<2 | 2,
		2<<5 | inverted(x, 4)<<3,
		c.opcode,
		3<<6 | out&7<<3 | y&7,
	}
	return fmt.Sprintf("$0x%08x; WORD $0x%04x // %s %s", binary.LittleEndian.Uint32(code), binary.LittleEndian.Uint16(code[4:]), c.name, text[2:])
}

// pairRows emits dst[i*step+p*unit+j] = the pair of src[2*p*stride+i*unit+j] and
// src[(2*p+1)*stride+i*unit+j] for i < panels, j < unit and p < k: panels of `unit` columns each.
func pairRows(unit, panels int) {
	begin(fmt.Sprintf("pairRows%dx%d", panels, unit), "func(dst *float32, src *uint16, step, stride, k int)",
		fmt.Sprintf("writes dst[i*step+p*%d+j] = the pair of src[2*p*stride+i*%d+j] and src[(2*p+1)*stride+i*%d+j] for i < %d, j < %d and p < k.", unit, unit, unit, panels, unit))
	to := []reg.Register{Load(Param("dst"), GP64())}
	src, step := Load(Param("src"), GP64()), Load(Param("step"), GP64())
	stride, k := Load(Param("stride"), GP64()), Load(Param("k"), GP64())
	SHLQ(Imm(1), stride)
	for i := 1; i < panels; i++ {
		to = append(to, GP64())
		LEAQ(Mem{Base: to[i-1], Index: step, Scale: 4}, to[i])
	}
	const lanes = 16
	var rest reg.Register // the mask of the last lanes of a panel
	if unit%lanes > 0 {
		bits := GP32()
		MOVL(U32(1<<(unit%lanes)-1), bits)
		rest = K()
		KMOVW(bits, rest)
	}
	near, far := GP64(), GP64()
	IMUL3Q(U32(nearRows), stride, near)
	IMUL3Q(U32(farRows), stride, far)
	Label("pair")
	TESTQ(k, k)
	JZ(LabelRef("end"))
	second := GP64()
	LEAQ(Mem{Base: src, Index: stride, Scale: 1}, second)
	last := 2*unit*panels - 2
	for _, row := range []reg.Register{src, second} {
		for at := 0; at < last+64; at += 64 { // a row need not begin with a line
			PREFETCHT0(Mem{Base: row, Index: near, Scale: 1, Disp: min(at, last)})
			PREFETCHT1(Mem{Base: row, Index: far, Scale: 1, Disp: min(at, last)})
		}
	}
	for i, dst := range to {
		for at := 0; at < unit; at += lanes {
			even, odd := Mem{Base: src, Disp: 2 * (i*unit + at)}, Mem{Base: second, Disp: 2 * (i*unit + at)}
			low, high := ZMM(), ZMM()
			if unit-at >= lanes {
				VPMOVZXWD(even, low)
				VPMOVZXWD(odd, high)
			} else {
				VPMOVZXWD_Z(even, rest, low)
				VPMOVZXWD_Z(odd, rest, high)
			}
			VPSLLD(Imm(16), high, high)
			VPORD(low, high, high)
			if unit-at >= lanes {
				VMOVDQU32(high, Mem{Base: dst, Disp: 4 * at})
			} else {
				VMOVDQU32(high, rest, Mem{Base: dst, Disp: 4 * at})
			}
		}
		ADDQ(U32(4*unit), dst)
	}
	LEAQ(Mem{Base: src, Index: stride, Scale: 2}, src)
	DECQ(k)
	JMP(LabelRef("pair"))
	Label("end")
	end()
}
