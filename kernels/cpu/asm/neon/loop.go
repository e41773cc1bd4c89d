package main

// vectorFloats is the number of floats in a vector.
const vectorFloats = 4

// lanes is the access of a loop body to its current elements of each slice: four of them,
// or, past the last whole vector, one. Then the other lanes read as zero and are not
// written.
type lanes struct {
	f      *function
	disp   int // bytes after the pointers
	single bool
}

// load reads the elements at p.
func (l lanes) load(p reg) vec {
	v := l.f.vec()
	l.f.op(l.move(), "%d(%v), F%d", l.disp, p, v)
	return v
}

func (l lanes) store(v vec, p reg) {
	l.f.op(l.move(), "F%d, %d(%v)", v, l.disp, p)
}

func (l lanes) move() string {
	if l.single {
		return "FMOVS"
	}
	return "FMOVQ"
}

// drop sets the lanes past the end to zero.
func (l lanes) drop(v vec) {
	if l.single {
		l.f.op("FMOVS", "F%d, F%d", v, v)
	}
}

// fill gives the lanes past the end the value of the one inside.
func (l lanes) fill(v vec) {
	if l.single {
		l.f.op("VDUP", "%v.S[0], %v.S4", v, v)
	}
}

// pass is a loop over the floats of slices. It counts n down to 0 and leaves the pointers
// behind the last float.
type pass struct {
	name     string // sets the labels of a function's passes apart
	n        reg
	pointers []reg
	unroll   int // vectors in a round; 0 means 1
}

// loop runs body for the elements of slices with the length of the one named.
func (f *function) loop(length string, unroll int, body func(l lanes), pointers ...reg) {
	f.run(pass{name: "vector", n: f.length(length), pointers: pointers, unroll: unroll}, func(l lanes, _ int) { body(l) })
}

// run emits the rounds of p.unroll vectors, those of one, and those of one float. body gets
// the number of the vector within its round; what it takes of vector registers is free
// again afterwards.
func (f *function) run(p pass, body func(l lanes, k int)) {
	if p.unroll > 1 {
		f.rounds(p, "Many", p.unroll, lanes{f: f}, body)
	}
	f.rounds(p, "One", 1, lanes{f: f}, body)
	f.rounds(p, "Rest", 1, lanes{f: f, single: true}, body)
}

// rounds emits body for `times` accesses a round while n is enough for one.
func (f *function) rounds(p pass, kind string, times int, l lanes, body func(l lanes, k int)) {
	each := vectorFloats
	if l.single {
		each = 1
	}
	label := p.name + kind
	f.op("CMP", "$%d, %v", times*each, p.n)
	f.op("BLT", "%sDone", label)
	f.label(label)
	for k := range times {
		l.disp = 4 * each * k
		f.scoped(func() { body(l, k) })
	}
	for _, pointer := range p.pointers {
		f.op("ADD", "$%d, %v", 4*each*times, pointer)
	}
	f.op("SUB", "$%d, %v", times*each, p.n)
	f.op("CMP", "$%d, %v", times*each, p.n)
	f.op("BGE", "%s", label)
	f.label(label + "Done")
}

// scoped gives the vector registers that do takes back.
func (f *function) scoped(do func()) {
	taken := f.vecs
	do()
	f.vecs = taken
}

// accumulators are sums that a reduction adds to in turn, because an addition takes as
// long as several loads.
type accumulators [4]vec

func (f *function) zeros() (a accumulators) {
	for k := range a {
		a[k] = f.vec()
		f.zero(a[k])
	}
	return a
}

// total adds up the accumulators and their lanes in a fixed order, in the first one.
func (a accumulators) total(f *function) vec {
	f.add(a[0], a[0], a[1])
	f.add(a[2], a[2], a[3])
	f.add(a[0], a[0], a[2])
	f.total(a[0], a[0])
	return a[0]
}
