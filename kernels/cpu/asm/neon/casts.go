package main

// eights emits body for every eight elements of a slice whose length is a multiple of 8.
func (f *function) eights(length string, body func()) {
	n := f.length(length)
	f.label("eight")
	f.op("CBZ", "%v, end", n)
	f.scoped(body)
	f.op("SUB", "$8, %v", n)
	f.op("B", "eight")
	f.label("end")
}

func widen(s *source) {
	f := s.begin("widenNEON", "func(out []float32, x []uint16)", "converts from BF16; the length is a multiple of 8.")
	out, x, zero := f.slice("out"), f.slice("x"), f.vec()
	f.zero(zero)
	f.eights("out", func() {
		v := [3]vec{f.vec(), f.vec(), f.vec()}
		f.op("FMOVQ.P", "16(%v), F%d", x, v[0])
		f.op("VZIP1", "%v.H8, %v.H8, %v.H8", v[0], zero, v[1])
		f.op("VZIP2", "%v.H8, %v.H8, %v.H8", v[0], zero, v[2])
		f.op("VST1.P", "[%v.S4, %v.S4], 32(%v)", v[1], v[2], out)
	})
	f.end()
}

func narrow(s *source) {
	f := s.begin("narrowNEON", "func(out []uint16, x []float32)", "rounds to the nearest BF16; the length is a multiple of 8.")
	out, x, c := f.slice("out"), f.slice("x"), f.words(1<<22, 1, 0x7fff)
	f.eights("out", func() {
		v := f.pair(x)
		for _, w := range v {
			odd, quiet := f.vec(), f.quieted(w, c[0])
			f.right(odd, w, 16)
			f.and(odd, odd, c[1])
			f.addInt(odd, odd, c[2])
			f.addInt(odd, odd, w)
			f.merge(w, odd, quiet)
		}
		f.storeHalves(v, out)
	})
	f.end()
}

func round(s *source) {
	f := s.begin("roundNEON", "func(out []uint16, x []float32, words []uint32)", "rounds to BF16 by the upper halves of the words; the length is a multiple of 8.")
	out, x, words, c := f.slice("out"), f.slice("x"), f.slice("words"), f.words(1<<22)
	f.eights("out", func() {
		v, chances := f.pair(x), f.pair(words)
		for i, w := range v {
			chance, quiet := chances[i], f.quieted(w, c[0])
			f.right(chance, chance, 16)
			f.addInt(chance, chance, w)
			f.merge(w, chance, quiet)
		}
		f.storeHalves(v, out)
	})
	f.end()
}

// pair loads two vectors and moves on.
func (f *function) pair(at reg) [2]vec {
	v := [2]vec{f.vec(), f.vec()}
	f.op("VLD1.P", "32(%v), [%v.S4, %v.S4]", at, v[0], v[1])
	return v
}

// quieted is v with the highest bit of the mantissa set, which keeps NaN what it is.
func (f *function) quieted(v, bit vec) vec {
	quiet := f.vec()
	f.or(quiet, v, bit)
	return quiet
}

// merge replaces v by `rounded`, or by `quiet` where v is NaN.
func (f *function) merge(v, rounded, quiet vec) {
	f.equalFloat(v, v, v)
	f.choose(v, rounded, quiet)
}

// storeHalves writes the high halves of the words and moves on.
func (f *function) storeHalves(v [2]vec, out reg) {
	f.op("VUZP2", "%v.H8, %v.H8, %v.H8", v[1], v[0], v[0])
	f.op("FMOVQ.P", "F%d, 16(%v)", v[0], out)
}
