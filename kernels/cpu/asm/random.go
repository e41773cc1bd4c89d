package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"

	"pnode/kernels/cpu/asm/formula"
)

// integers is the word x eight times in read-only memory.
func integers(x uint32) Mem { return constant(math.Float32frombits(x)) }

// spread broadcasts an integer argument.
func spread(name string) reg.VecVirtual {
	v := YMM()
	VBROADCASTSS(argument(Param(name)), v)
	return v
}

// philox runs eight blocks at a time, one in each lane.
func philox() {
	begin("philoxAVX2", "func(words []uint32, keys *[20]uint32, c0, c1, c2, c3 uint32)",
		"writes the blocks from counter c3:c2:c1:c0 on, with the keys of each round; len(words) is a multiple of 32, and c0 does not overflow.")
	words, n := slice("words"), Load(Param("words").Len(), GP64())
	keys := Load(Param("keys"), GP64())
	first := spread("c0")
	numbers := GLOBL("laneNumbers", 8|16)
	for i := range vectorFloats {
		DATA(4*i, U32(i))
	}
	VPADDD(numbers, first, first)
	Label("blocks")
	SUBQ(Imm(4*vectorFloats), n)
	JL(LabelRef("done"))
	c := [4]reg.VecVirtual{YMM(), spread("c1"), spread("c2"), spread("c3")}
	VMOVDQA(first, c[0])
	for round := range formula.PhiloxRounds {
		highA, lowA := products(c[0], formula.PhiloxA)
		highB, lowB := products(c[2], formula.PhiloxB)
		addKey(highB, c[1], Mem{Base: keys, Disp: 8 * round})
		addKey(highA, c[3], Mem{Base: keys, Disp: 8*round + 4})
		c = [4]reg.VecVirtual{highB, lowB, highA, lowA}
	}
	storeBlocks(words, c)
	VPADDD(integers(vectorFloats), first, first)
	ADDQ(U32(4*4*vectorFloats), words)
	JMP(LabelRef("blocks"))
	Label("done")
	end()
}

// addKey computes x ^= y ^ key.
func addKey(x, y reg.VecVirtual, key Mem) {
	k := YMM()
	VPBROADCASTD(key, k)
	VPXOR(y, k, k)
	VPXOR(k, x, x)
}

// products are the high and the low words of x*factor. The instruction multiplies the even
// words.
func products(x reg.VecVirtual, factor uint32) (high, low reg.VecVirtual) {
	even, odd := YMM(), YMM()
	high, low = YMM(), YMM()
	VPSRLQ(Imm(32), x, odd)
	VPMULUDQ(integers(factor), x, even)
	VPMULUDQ(integers(factor), odd, odd)
	VPSLLQ(Imm(32), odd, low)
	VPBLENDD(Imm(0xaa), low, even, low)
	VPSRLQ(Imm(32), even, high)
	VPBLENDD(Imm(0xaa), odd, high, high)
	return high, low
}

// storeBlocks writes the words of each lane next to each other: block 0, block 1, ...
func storeBlocks(words reg.Register, c [4]reg.VecVirtual) {
	var pairs, blocks [4]reg.VecVirtual
	for i := range pairs {
		pairs[i], blocks[i] = YMM(), YMM()
	}
	VPUNPCKLDQ(c[1], c[0], pairs[0])
	VPUNPCKLDQ(c[3], c[2], pairs[1])
	VPUNPCKHDQ(c[1], c[0], pairs[2])
	VPUNPCKHDQ(c[3], c[2], pairs[3])
	for i := range 2 { // blocks i and i+4 of the halves
		VPUNPCKLQDQ(pairs[2*i+1], pairs[2*i], blocks[2*i])
		VPUNPCKHQDQ(pairs[2*i+1], pairs[2*i], blocks[2*i+1])
	}
	for i := range 2 {
		low, high := YMM(), YMM()
		VPERM2I128(Imm(0x20), blocks[2*i+1], blocks[2*i], low)
		VPERM2I128(Imm(0x31), blocks[2*i+1], blocks[2*i], high)
		VMOVDQU(low, Mem{Base: words, Disp: 32 * i})
		VMOVDQU(high, Mem{Base: words, Disp: 64 + 32*i})
	}
}

func drop() {
	begin("dropAVX2", "func(out, x []float32, words []uint32, least uint32, scale float32)",
		"computes out = x*scale where the word is at least `least`, else 0; there are words for all.")
	out, x, words := slice("out"), slice("x"), slice("words")
	least, scale := spread("least"), scalar("scale")
	loop("out", func(l lanes) {
		v, word, larger := l.load(x), l.load(words), YMM()
		VMULPS(scale, v, v)
		VPMAXUD(least, word, larger)
		VPCMPEQD(word, larger, larger)
		VPAND(larger, v, v)
		l.store(v, out)
	})
	end()
}

// eights emits body for every eight elements of a slice whose length is a multiple of 8.
func eights(length string, body func(i reg.Register)) {
	n, i := Load(Param(length).Len(), GP64()), GP64()
	XORQ(i, i)
	Label("eight")
	CMPQ(i, n)
	JGE(LabelRef("done"))
	body(i)
	ADDQ(Imm(vectorFloats), i)
	JMP(LabelRef("eight"))
	Label("done")
}

func casts() {
	begin("widenAVX2", "func(out []float32, x []uint16)", "converts from BF16; the length is a multiple of 8.")
	out, x := slice("out"), slice("x")
	eights("out", func(i reg.Register) {
		v := YMM()
		VPMOVZXWD(Mem{Base: x, Index: i, Scale: 2}, v)
		VPSLLD(Imm(16), v, v)
		VMOVDQU(v, Mem{Base: out, Index: i, Scale: 4})
	})
	end()

	begin("narrowAVX2", "func(out []uint16, x []float32)", "rounds to the nearest BF16; the length is a multiple of 8.")
	out, x = slice("out"), slice("x")
	eights("out", func(i reg.Register) {
		v, odd := YMM(), YMM()
		VMOVDQU(Mem{Base: x, Index: i, Scale: 4}, v)
		quiet := quieted(v)
		VPSRLD(Imm(16), v, odd)
		VPAND(integers(1), odd, odd)
		VPADDD(integers(0x7fff), odd, odd)
		VPADDD(odd, v, v)
		storeHalves(v, quiet, Mem{Base: out, Index: i, Scale: 2})
	})
	end()

	begin("roundAVX2", "func(out []uint16, x []float32, words []uint32)", "rounds to BF16 by the upper halves of the words; the length is a multiple of 8.")
	out, x = slice("out"), slice("x")
	words := slice("words")
	eights("out", func(i reg.Register) {
		v, chance := YMM(), YMM()
		VMOVDQU(Mem{Base: x, Index: i, Scale: 4}, v)
		quiet := quieted(v)
		VMOVDQU(Mem{Base: words, Index: i, Scale: 4}, chance)
		VPSRLD(Imm(16), chance, chance)
		VPADDD(chance, v, v)
		storeHalves(v, quiet, Mem{Base: out, Index: i, Scale: 2})
	})
	end()
}

// wideCasts are widen and narrow of any length.
func wideCasts() {
	registers = zmm
	begin("widenAVX512", "func(out []float32, x []uint16)", "converts from BF16.")
	out, x := slice("out"), slice("x")
	loop("out", func(l lanes) {
		v := vector()
		if l.mask == nil {
			VPMOVZXWD(l.halves(x), v)
		} else {
			VPMOVZXWD_Z(l.halves(x), l.mask, v)
		}
		VPSLLD(Imm(16), v, v)
		l.store(v, out)
	})
	end()

	begin("narrowAVX512", "func(out []uint16, x []float32)", "rounds to the nearest BF16.")
	out, x = slice("out"), slice("x")
	loop("out", func(l lanes) {
		v, odd, quiet, isNaN := l.load(x), vector(), vector(), K()
		VCMPPS(Imm(3), v, v, isNaN)
		VPORD_BCST(integers(1<<22), v, quiet)
		VPSRLD(Imm(16), v, odd)
		VPANDD_BCST(integers(1), odd, odd)
		VPADDD_BCST(integers(0x7fff), odd, odd)
		VPADDD(odd, v, v)
		VMOVDQA32(quiet, isNaN, v)
		VPSRLD(Imm(16), v, v)
		if l.mask == nil {
			VPMOVDW(v, l.halves(out))
		} else {
			VPMOVDW(v, l.mask, l.halves(out))
		}
	})
	end()
	registers = ymm
}

// quiet are the lanes that are NaN, and their bits with the highest of the mantissa set.
type quiet struct{ mask, bits reg.VecVirtual }

func quieted(v reg.VecVirtual) quiet {
	q := quiet{YMM(), YMM()}
	VCMPPS(Imm(3), v, v, q.mask)
	VPOR(integers(1<<22), v, q.bits)
	return q
}

// storeHalves writes the high halves of the words.
func storeHalves(v reg.VecVirtual, q quiet, at Mem) {
	VPBLENDVB(q.mask, q.bits, v, v)
	VPSRLD(Imm(16), v, v)
	VPACKUSDW(v, v, v)
	VPERMQ(Imm(0x08), v, v)
	VMOVDQU(v.AsX(), at)
}
