package cpu

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/cpuid/v2"
)

// TestPairsAddInOrder holds the processor to the order and the rounding of addPair, on numbers of all
// sizes, infinities and NaN among them, and on small ones, whose sums are often too small.
func TestPairsAddInOrder(t *testing.T) {
	if !cpuid.CPU.Supports(cpuid.AVX512BF16) {
		t.Skip("this processor does not multiply BF16: addPair stands in for it in the other tests")
	}
	m := avx512bf16().pairs
	rng := rand.New(rand.NewPCG(1, 2))
	draws := []func() uint32{
		rng.Uint32,
		func() uint32 { return rng.Uint32()&0x81ff81ff | 0x3e003e00 }, // near 1: sums are rounded often
		func() uint32 { return rng.Uint32()&0x9fff9fff | 0x10001000 }, // products near the smallest normal number
	}
	const k = 3
	a, b, init, c := make([]float32, m.mr*k), make([]float32, m.nr*k), make([]float32, m.nr), make([]float32, m.mr*m.nr)
	for round := range 3000 {
		draw := draws[round%len(draws)]
		for _, x := range [][]float32{a, b} {
			for i := range x {
				x[i] = math.Float32frombits(draw())
			}
		}
		for i := range init {
			init[i] = math.Float32frombits(draw() >> (round % 2 * 4)) // as large as products of small ones
		}
		m.multiply(&tile{K: k, A: &a[0], ARow: 1, ACol: m.mr, B: &b[0], Init: &init[0], C: &c[0], CRow: m.nr, Count: 1})
		for i, got := range c {
			want := init[i%m.nr]
			for p := range k {
				want = addPair(want, math.Float32bits(a[p*m.mr+i/m.nr]), math.Float32bits(b[p*m.nr+i%m.nr]))
			}
			if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Fatalf("round %d: element %d is %v, want %v", round, i, got, want)
			}
		}
	}
}
