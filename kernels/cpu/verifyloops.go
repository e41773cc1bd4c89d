package cpu

import (
	"fmt"

	"pnode/kernels"
)

// guard is how many numbers behind what a loop may write are looked at too.
const guard = 9

// loopTolerance is for sums of some dozens of numbers near 1.
const loopTolerance = 2e-5

// halfTolerance is for bits of BF16 as numbers: the last one of powers that a loop computes may be another.
const halfTolerance = 1e-4

// verifyLoops compares the loops with plain Go on slices of n numbers.
func (v *variant) verifyLoops(n int) error {
	if err := v.verifyTrials(loopTrials, n, loopTolerance); err != nil || v.softmaxHalves == nil {
		return err
	}
	return v.verifyTrials(halfTrials, n, halfTolerance)
}

func (v *variant) verifyTrials(trials []loopTrial, n int, tolerance float64) error {
	reference := generic()
	for _, loop := range trials {
		got, want := &trial{n: n}, &trial{n: n}
		loop.run(v, got)
		loop.run(reference, want)
		if i := differs(got.written(), want.written(), tolerance); i >= 0 {
			return fmt.Errorf("%s is wrong for %d elements", loop.name, n)
		}
	}
	return nil
}

// trial makes the operands of a loop and keeps what it writes.
type trial struct {
	n       int
	outputs [][]float32
	halves  [][]uint16
	words   [][]uint32
	results []float32
}

// in is an operand of n numbers between -0.5 and 0.5, far one between -12 and 12.
func (t *trial) in(step int) []float32 { return ramp(t.n, step) }

func (t *trial) far(step int) []float32 { return scaled(ramp(t.n, step), 24) }

// out is an operand that the loop may change.
func (t *trial) out(step int) []float32 { return t.room(t.n, step) }

func (t *trial) room(n, step int) []float32 {
	x := ramp(n+guard, step)
	t.outputs = append(t.outputs, x)
	return x[:n]
}

// positive is an out without negative numbers.
func (t *trial) positive(step int) []float32 {
	x := t.out(step)
	for i := range x {
		x[i] += 0.5
	}
	return x
}

// half is an out of BF16, random are words for n elements.
func (t *trial) half() []uint16 {
	x := make([]uint16, t.n+guard)
	t.halves = append(t.halves, x)
	return x[:t.n]
}

func (t *trial) random() []uint32 {
	x := make([]uint32, (t.n+31)/32*32+guard)
	t.words = append(t.words, x)
	philoxGeneric(x[:len(x)-guard], kernels.Random{Key: 1}, 0)
	return x[:len(x)-guard]
}

func (t *trial) result(x ...float32) { t.results = append(t.results, x...) }

// written is everything that a loop wrote or gave. A BF16 below the smallest normal one counts as zero, as it does in products.
func (t *trial) written() []float32 {
	all := t.results
	for _, x := range t.outputs {
		all = append(all, x...)
	}
	for _, x := range t.halves {
		for _, h := range x {
			if h&(infinityBits>>16) == 0 {
				h &= 1 << 15
			}
			all = append(all, float32(h))
		}
	}
	for _, x := range t.words {
		for _, w := range x {
			all = append(all, float32(w>>16), float32(w&0xffff))
		}
	}
	return all
}

func scaled(x []float32, s float32) []float32 {
	scaleGeneric(x, s)
	return x
}

// loopTrial runs a loop of a variant.
type loopTrial struct {
	name string
	run  func(v *variant, t *trial)
}

// halfTrials run the loops that not every variant has.
var halfTrials = []loopTrial{
	{"softmaxHalves", func(v *variant, t *trial) {
		top, sum := v.softmaxHalves(t.half(), t.far(7), 1.5, -9)
		t.result(top, sum)
	}},
	{"softmaxHalves", func(v *variant, t *trial) { // beyond the least power, and with a larger one before
		top, sum := v.softmaxHalves(t.half(), t.far(7), 40, 485)
		t.result(top, sum)
	}},
	{"softmaxGradHalves", func(v *variant, t *trial) {
		v.softmaxGradHalves(t.half(), t.half(), t.in(3), t.in(5), &[...]float32{1.5, 0.75, 0.5, 0.25, 4})
	}},
	{"softmaxGradHalves", func(v *variant, t *trial) {
		v.softmaxGradHalves(t.half(), t.half(), t.far(3), t.in(5), &[...]float32{25, 180, 0.5, 0.25, 4})
	}},
}

// loopTrials run the other loops of a variant, in the order of its fields.
var loopTrials = []loopTrial{
	{"max", func(v *variant, t *trial) { t.result(v.max(t.in(7))) }},
	{"add", func(v *variant, t *trial) { v.add(t.out(3), t.in(7), t.in(11)) }},
	{"scale", func(v *variant, t *trial) { v.scale(t.out(3), 1.25) }},
	{"powers", func(v *variant, t *trial) { t.result(v.powers(t.out(3), t.far(7), 1.5, 11)) }},
	{"softmax", func(v *variant, t *trial) {
		top, sum := v.softmax(scaled(t.out(3), 24), -9)
		t.result(top, sum)
	}},
	{"softmax", func(v *variant, t *trial) { // beyond the least power
		top, sum := v.softmax(scaled(t.out(3), 600), -9)
		t.result(top, sum)
	}},
	{"softmaxGrad", func(v *variant, t *trial) { v.softmaxGrad(scaled(t.room(t.n, 3), 600), t.out(5), 180, 0.25) }},
	{"softmaxGrad", func(v *variant, t *trial) { v.softmaxGrad(t.out(3), t.out(5), 0.75, 0.25) }},
	{"weighted", func(v *variant, t *trial) { v.weighted(t.out(5), ramp(3, 7), ramp(3*(t.n+2), 11), t.n+2) }},
	{"axpy", func(v *variant, t *trial) { v.axpy(t.out(3), t.in(7), 1.25) }},
	{"timesRows", func(v *variant, t *trial) {
		v.timesRows(t.room(3*t.n+4, 5), ramp(4*t.n+5, 11), t.n+2, t.n+1, t.n, []float32{1.25, -0.5, 2})
	}},
	{"axpyRows", func(v *variant, t *trial) {
		v.axpyRows(t.room(3*t.n+4, 5), ramp(4*t.n+5, 11), t.n+2, t.n+1, t.n, []float32{1.25, -0.5, 2})
	}},
	{"dotRows", func(v *variant, t *trial) {
		v.dotRows(t.room(3, 5), ramp(4*t.n+5, 11), ramp(4*t.n+5, 7), t.n+2, t.n+1, t.n)
	}},
	{"gelu", func(v *variant, t *trial) { v.gelu(t.out(3), t.far(7)) }},
	{"geluGrad", func(v *variant, t *trial) { v.geluGrad(t.out(3), t.in(5), t.far(7)) }},
	{"swiglu", func(v *variant, t *trial) { v.swiglu(t.out(3), t.far(7), t.in(5)) }},
	{"swigluGrad", func(v *variant, t *trial) { v.swigluGrad(t.out(3), t.out(2), t.in(5), t.far(7), t.in(11)) }},
	{"rotate", func(v *variant, t *trial) { v.rotate(t.room(4*t.n, 3), t.in(7), t.in(11), -1) }},
	{"narrow", func(v *variant, t *trial) { v.narrow(t.half(), t.far(7)) }},
	{"round", func(v *variant, t *trial) { v.round(t.half(), t.far(7), t.random()[:t.n]) }},
	{"widen", func(v *variant, t *trial) {
		x := t.half()
		narrowGeneric(x, t.far(7))
		v.widen(t.out(3), x)
	}},
	{"philox", func(v *variant, t *trial) { v.philox(t.random(), kernels.Random{Key: 1 << 40, Stream: 5 << 33}, 7) }},
	{"drop", func(v *variant, t *trial) { v.drop(t.out(3), t.in(7), t.random()[:t.n], 1<<31, 2) }},
	{"adamW", func(v *variant, t *trial) {
		s := [8]float32{0.25, 0.125, 0.25, 0.125, 0.5, 1.5, 1.25, 2}
		v.adamW(t.out(3), t.out(5), t.positive(2), t.in(7), &s)
	}},
	{"sum", func(v *variant, t *trial) { t.result(v.sum(t.in(7))) }},
	{"sumSquares", func(v *variant, t *trial) { t.result(float32(v.sumSquares(t.in(7)))) }},
	{"deviation", func(v *variant, t *trial) { t.result(v.deviation(t.in(7), 0.25)) }},
	{"norm", func(v *variant, t *trial) { v.norm(t.out(3), t.in(5), t.in(7), t.in(11), 0.25, 1.5) }},
	{"normSums", func(v *variant, t *trial) { t.result(v.normSums(t.in(5), t.in(7), t.in(11), 0.25, 1.5)) }},
	{"normGrad", func(v *variant, t *trial) {
		s := [4]float32{0.25, 1.5, 0.5, 0.75}
		v.normGrad(t.out(3), t.in(2), t.in(5), t.in(7), t.in(11), &s)
	}},
	{"normWeightGrad", func(v *variant, t *trial) { v.normWeightGrad(t.out(2), t.out(3), t.in(5), t.in(7), 0.25, 1.5) }},
}
