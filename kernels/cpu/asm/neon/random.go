package main

import "pnode/kernels/cpu/asm/formula"

// philox runs two groups of four blocks at a time, one block in each lane.
func philox(s *source) {
	f := s.begin("philoxNEON", "func(words []uint32, keys *[20]uint32, c0, c1, c2, c3 uint32)",
		"writes the blocks from counter c3:c2:c1:c0 on, with the keys of each round; len(words) is a multiple of 32, and c0 does not overflow.")
	words, n, keys, at := f.slice("words"), f.length("words"), f.integer("keys"), f.reg()
	c := f.words(formula.PhiloxA, formula.PhiloxB, vectorFloats)
	p := philoxRound{function: f, factorA: c[0], factorB: c[1], key: f.vec()}
	next, c1, c2, c3 := f.scalar("c0"), f.scalar("c1"), f.scalar("c2"), f.scalar("c3")
	f.scoped(func() { // 0 to 3 for the lanes
		numbers, n := f.vec(), f.reg()
		f.zero(numbers)
		for i := 1; i < vectorFloats; i++ {
			f.op("MOVD", "$%d, %v", i, n)
			f.op("VMOV", "%v, %v.S[%d]", n, numbers, i)
		}
		f.addInt(next, next, numbers)
	})
	var groups [2][4]vec
	for g := range groups {
		for i := range groups[g] {
			groups[g][i] = f.vec()
		}
	}
	f.label("blocks")
	f.op("CBZ", "%v, end", n)
	f.op("MOVD", "%v, %v", keys, at)
	for _, group := range groups {
		for i, counter := range []vec{next, c1, c2, c3} {
			f.copy(group[i], counter)
		}
		f.addInt(next, next, c[2])
	}
	for range formula.PhiloxRounds {
		p.run(groups[:], at)
	}
	for _, g := range groups {
		f.op("VST4.P", "[%v.S4, %v.S4, %v.S4, %v.S4], 64(%v)", g[0], g[1], g[2], g[3], words)
	}
	f.op("SUB", "$%d, %v", len(groups)*4*vectorFloats, n)
	f.op("B", "blocks")
	f.label("end")
	f.end()
}

// philoxRound holds the registers that a round needs besides the counters.
type philoxRound struct {
	*function
	factorA, factorB, key vec
}

// run does a round on groups of counters, with the next two keys at `keys`.
func (p *philoxRound) run(groups [][4]vec, keys reg) {
	for half := range 2 {
		p.op("VLD1R.P", "4(%v), [%v.S4]", keys, p.key)
		for _, c := range groups {
			p.xor(c[1+2*half], c[1+2*half], p.key)
		}
	}
	for _, c := range groups {
		p.scoped(func() {
			highA, lowA := p.products(c[0], p.factorA)
			highB, lowB := p.products(c[2], p.factorB)
			p.xor(c[0], highB, c[1])
			p.xor(c[2], highA, c[3])
			p.copy(c[1], lowB)
			p.copy(c[3], lowA)
		})
	}
}

// products are the high and the low words of x*factor.
func (f *function) products(x, factor vec) (high, low vec) {
	first, second := f.vec(), f.vec()
	high, low = f.vec(), f.vec()
	f.productLow(first, x, factor)
	f.productHigh(second, x, factor)
	f.op("VUZP1", "%v.S4, %v.S4, %v.S4", second, first, low)
	f.op("VUZP2", "%v.S4, %v.S4, %v.S4", second, first, high)
	return high, low
}

func drop(s *source) {
	f := s.begin("dropNEON", "func(out, x []float32, words []uint32, least uint32, scale float32)",
		"computes out = x*scale where the word is at least `least`, else 0; there are words for all.")
	out, x, words := f.slice("out"), f.slice("x"), f.slice("words")
	least, scale := f.scalar("least"), f.scalar("scale")
	f.loop("out", 1, func(l lanes) {
		v, word := l.load(x), l.load(words)
		f.mul(v, v, scale)
		f.atLeast(word, word, least)
		f.and(v, v, word)
		l.store(v, out)
	}, out, x, words)
	f.end()
}
