package cpu

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/conform"
)

// additions names each way of processors to add a pair of products to a sum.
var additions = map[string]func(sum float32, a, b uint32) float32{"AVX512_BF16": addInTurn, "FEAT_BF16": addTogether}

// pairsInGo gives a variant products in pairs, with tiles of its own size, for processors that have none.
func pairsInGo(v *variant, add func(sum float32, a, b uint32) float32) *variant {
	mr, nr := v.product.mr, v.product.nr
	v.addPair = add
	v.name += " with pairs in Go"
	v.pairs = v.product
	v.pairs.copyB, v.pairs.multiplyPack, v.pairs.few = nil, nil, nil
	v.pairs.direct, v.pairs.directHalves = directKernels{}, directKernels{}
	v.pairs.multiply = func(t *tile) { multiplyPairsAny(t, mr, nr, add) }
	v.pairA, v.pairs.pairB = pairsGeneric(mr), pairsGeneric(nr)
	v.attentionPairs = v.pairs
	if v.softmaxHalves == nil {
		v.softmaxHalves, v.softmaxGradHalves = softmaxHalvesGeneric, softmaxGradHalvesGeneric
	}
	return v
}

// multiplyPairsAny is the micro-kernel of pairs for any tile.
func multiplyPairsAny(t *tile, mr, nr int, add func(sum float32, a, b uint32) float32) {
	a, b := unsafe.Slice(t.A, (t.Count-1)*t.AStep+(mr-1)*t.ARow+(t.K-1)*t.ACol+1), unsafe.Slice(t.B, t.K*nr)
	init, c := unsafe.Slice(t.Init, nr), unsafe.Slice(t.C, (t.Count*mr-1)*t.CRow+nr)
	for i := range t.Count * mr {
		for j := range nr {
			sum := init[j]
			for p := range t.K {
				sum = add(sum, math.Float32bits(a[i/mr*t.AStep+i%mr*t.ARow+p*t.ACol]), math.Float32bits(b[p*nr+j]))
			}
			if t.Accumulate != 0 {
				sum += c[i*t.CRow+j]
			}
			c[i*t.CRow+j] = sum
		}
	}
}

// TestPairsConform is the suite of products and attention of BF16, around a micro-kernel of pairs in Go.
func TestPairsConform(t *testing.T) {
	for name, add := range additions {
		t.Run(name, func(t *testing.T) {
			dev := newDevice(t, Options{Threads: 2})
			v := *candidates()[0].variant
			dev.v = pairsInGo(&v, add)
			if err := dev.v.verify(); err != nil {
				t.Fatal(err)
			}
			ops := []kernels.Op{kernels.OpMatMul, kernels.OpAttentionForward, kernels.OpAttentionBackward}
			if testing.Short() && name == "FEAT_BF16" {
				ops = ops[:1] // TestConform has the rest on an emulated processor (.ci/run)
			}
			for _, op := range ops {
				conform.RunOpHalfForms(t, dev, op, kernels.BF16)
			}
		})
	}
}

// pairsBesideGo returns a processor that multiplies BF16, with two threads, and the same one with such products in Go.
func pairsBesideGo(t *testing.T) (dev, imitation *Device) {
	t.Helper()
	if candidates()[0].pairs.multiply == nil {
		t.Skip("this processor does not multiply BF16")
	}
	t.Setenv(VariantEnv, candidates()[0].name)
	dev, imitation = newDevice(t, Options{Threads: 2}), newDevice(t, Options{Threads: 1})
	v := *dev.v
	imitation.v = pairsInGo(&v, v.addPair)
	return dev, imitation
}

// TestPairsGiveTheBitsOfPairsInGo: tiles, packing and the order of additions are the same whatever
// multiplies them, with an even K, an odd one and more than a depth block.
func TestPairsGiveTheBitsOfPairsInGo(t *testing.T) {
	dev, imitation := pairsBesideGo(t)
	for _, p := range []placement{{m: 3, n: 70, k: 51}, {m: 37, n: 64, k: 2}, {m: flatRows + 7, n: 83, k: 1}, {m: flatRows + 7, n: 35, k: 4*depthBlock + 10}, {m: 50, n: 35, k: 4*depthBlock + 11}} {
		for _, flags := range []kernels.Flags{0, kernels.TransA, kernels.TransB, kernels.TransA | kernels.TransB | kernels.Accumulate} {
			got, want := p.pairBits(t, dev, flags), p.pairBits(t, imitation, flags)
			for i := range want {
				if got[i] != want[i] {
					t.Errorf("%+v flags %b: element %d differs from that in Go", p, flags, i)
					break
				}
			}
		}
	}
}

// pairBits are the bits of a product of BF16 operands drawn from a fixed seed. These begin at an odd element, where
// no pair is aligned.
func (p placement) pairBits(t *testing.T, dev *Device, flags kernels.Flags) (bits []uint32) {
	t.Helper()
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func(n int) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = rng.Float32() - 0.5
		}
		return x
	}
	_, a := rounded(t, dev, kernels.BF16, draw(1+p.m*p.k))
	_, b := rounded(t, dev, kernels.BF16, draw(1+p.k*p.n))
	out, bias := upload(t, dev, draw(p.m*p.n)), upload(t, dev, draw(p.n))
	if err := dev.run(kernels.MatMul(out, a.Slice(1, p.m*p.k), b.Slice(1, p.k*p.n), bias, p.m, p.n, p.k, flags)); err != nil {
		t.Fatal(err)
	}
	for _, x := range floats(out) {
		bits = append(bits, math.Float32bits(x))
	}
	return bits
}

// TestAttentionInPairsGivesTheBitsOfPairsInGo has more than a chunk of keys, odd numbers of them, and queries that do
// not see the first ones.
func TestAttentionInPairsGivesTheBitsOfPairsInGo(t *testing.T) {
	dev, imitation := pairsBesideGo(t)
	for _, s := range []kernels.AttentionShape{{B: 1, T: 37, H: 2, K: 2, D: 64}, {B: 1, T: 261, H: 2, K: 1, D: 10}} {
		all, masked := []int{0, s.T}, s.T > attentionChunk
		passes(t, dev, kernels.BF16, s, all, masked).compare(t, passes(t, imitation, kernels.BF16, s, all, masked))
	}
}

// TestPartsOfAttentionInPairsGiveTheBitsOfTheWhole is TestPartsOfAttentionGiveTheBitsOfTheWhole for processors that
// do not multiply BF16.
func TestPartsOfAttentionInPairsGiveTheBitsOfTheWhole(t *testing.T) {
	dev := newDevice(t, Options{Threads: 2})
	v := *candidates()[0].variant
	dev.v = pairsInGo(&v, addTogether)
	checkParts(t, dev, kernels.BF16, kernels.AttentionShape{B: 1, T: 299, H: 1, K: 1, D: 8}, []int{0, 32, 224, 256, 299}, true)
}

// TestVerifyFindsWrongPairs runs the start-up check on pairs that are added or packed wrong.
func TestVerifyFindsWrongPairs(t *testing.T) {
	for name, spoil := range map[string]func(v *variant){
		"multiply of pairs is wrong for K 1, accumulate 0, numbers of 1": func(v *variant) {
			v.pairs.multiply = func(t *tile) {
				multiplyPairsAny(t, 4, 4, addInTurn)
				*t.C = math.Nextafter32(*t.C, 2)
			}
		},
		"multiply of pairs is wrong for K 1, accumulate 0, numbers of 2.1684043e-19": func(v *variant) { // keeps what counts as zero
			v.pairs.multiply = func(t *tile) {
				multiplyPairsAny(t, 4, 4, addInTurn)
				for i, sum := range unsafe.Slice(t.C, 4) {
					if sum == 0 {
						unsafe.Slice(t.C, 4)[i] = 0x1p-127
					}
				}
			}
		},
		"multiplyPack of pairs is wrong": func(v *variant) { v.pairs.multiplyPack = v.pairs.multiply },
		"pairA is wrong":                 func(v *variant) { v.pairA = pairsGeneric(3) },
		"pairB is wrong": func(v *variant) {
			v.pairs.pairB = func(dst []float32, src []uint16, step, stride, k, panels int) {
				pairsGeneric(4)(dst, src, step, stride, k, panels-1)
			}
		},
		"transposeB of pairs is wrong": func(v *variant) {
			v.pairs.transposeB = func(dst, src []float32, stride, k int) { transposeGeneric(dst, src, stride, k-1) }
		},
	} {
		v := pairsInGo(generic(), addInTurn)
		if err := v.verify(); err != nil {
			t.Fatal(err)
		}
		spoil(v)
		if err := v.verify(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// TestVerifyFindsOtherAdditions: a processor that adds pairs otherwise than its kind does is not used.
func TestVerifyFindsOtherAdditions(t *testing.T) {
	for wants, want := range additions {
		for adds, add := range additions {
			v := pairsInGo(generic(), add)
			v.addPair = want
			if err := v.verify(); (err == nil) != (wants == adds) {
				t.Errorf("the sums of %s instead of those of %s: error is %v", adds, wants, err)
			}
		}
	}
}

// pairSum is a sum and a pair of products with a factor in common.
type pairSum struct{ sum, low, high, factor, want float32 }

func (c pairSum) check(t *testing.T, add func(sum float32, a, b uint32) float32) {
	t.Helper()
	bf16 := func(x float32) uint32 { return math.Float32bits(x) >> 16 }
	got := add(c.sum, bf16(c.low)|bf16(c.high)<<16, bf16(c.factor)|bf16(c.factor)<<16)
	if math.Float32bits(got) != math.Float32bits(c.want) {
		t.Errorf("%v and (%v, %v) times %v are %v, want %v", c.sum, c.low, c.high, c.factor, got, c.want)
	}
}

var (
	infinity = float32(math.Inf(1))
	negative = float32(math.Copysign(0, -1))
)

// TestAddInTurn has sums in which the order, a rounding and the smallest numbers show.
func TestAddInTurn(t *testing.T) {
	for _, c := range []pairSum{
		{0, 1, 2, 3, 9},
		{1, 0x1p-12, 0x1p-12, 0x1p-12, 1},                     // each is half of the last digit: to even, twice
		{1 + 0x1p-23, 0x1p-12, 0x1p-12, 0x1p-12, 1 + 0x1p-22}, // the first goes to even, the second stays there
		{0x1p127, -0x1p120, 0x1p120, 0x1p7, infinity},         // the upper one first
		{0x1p-127, 0, 0, 1, 0},
		{0, 0x1p-127, 0, 1, 0},
		{0, 0x1p-64, 0, 0x1p-64, 0},
	} {
		c.check(t, addInTurn)
	}
}

// TestAddTogether has the same sums, and such as are infinite, zero or no number.
func TestAddTogether(t *testing.T) {
	for _, c := range []pairSum{
		{0, 1, 2, 3, 9},
		{1, 0x1p-12, 0x1p-12, 0x1p-12, 1 + 0x1p-23},       // together they are the last digit
		{1, 0x1p-12, 0, 0x1p-12, 1 + 0x1p-23},             // and any part of it makes the last digit odd
		{1 + 0x1p-23, 0x1p-12, 0, 0x1p-12, 1 + 0x1p-23},   // which this one is
		{1 + 0x1p-22, -0x1p-12, 0, 0x1p-12, 1 + 0x1p-23},  // toward zero
		{0x1p127, -0x1p120, 0x1p120, 0x1p7, 0x1p127},      // both products before the sum
		{0, 0x1p120, 0, 0x1p8, infinity},                  // as large as that
		{math.MaxFloat32, 0x1p100, 0, 1, math.MaxFloat32}, // but not what lies below
		{-math.MaxFloat32, -0x1p100, 0, 0x1p4, -infinity}, // beyond half of the last digit and more
		{0x1.8p-126, -0x1p-63, 0, 0x1p-63, 0},             // the difference is too small
		{-0x1.8p-126, 0x1p-63, 0, 0x1p-63, negative},      // of either sign
		{1, -1, 0, 1, 0},
		{-1, 1, 0, 1, 0},
		{negative, 0, 0, -1, negative},
		{negative, 0, 0, 1, 0},
		{0x1p-127, 0, 0, 1, 0},
		{0, 0x1p-127, 0, 1, 0},
		{0, 0x1p-64, 0, 0x1p-64, 0},
		{infinity, 0, 0, 1, infinity},
		{infinity, -infinity, 0, 1, math.Float32frombits(quietNaN)},
		{1, infinity, 0, 0, math.Float32frombits(quietNaN)},
		{math.Float32frombits(0xffc12345), 0, 0, 1, math.Float32frombits(quietNaN)},
	} {
		c.check(t, addTogether)
	}
}

// TestAddTogetherIsExactBeforeItRounds compares it with numbers of any length.
func TestAddTogetherIsExactBeforeItRounds(t *testing.T) {
	exact := func(x float32) *big.Float { return new(big.Float).SetPrec(600).SetFloat64(float64(x)) }
	rounded := func(x *big.Float) float32 {
		short := new(big.Float).SetMode(big.ToZero).SetPrec(24).Set(x)
		bits, _ := short.Float32()
		if short.Cmp(x) != 0 {
			return math.Float32frombits(math.Float32bits(bits) | 1)
		}
		return bits
	}
	rng := rand.New(rand.NewPCG(1, 2))
	draw := func() (pair uint32, low, high float32) { // far from what is too large or too small
		pair = rng.Uint32()&0x8fff8fff | 0x30003000
		return pair, math.Float32frombits(pair << 16), math.Float32frombits(pair &^ 0xffff)
	}
	for range 20000 {
		a, lowA, highA := draw()
		b, lowB, highB := draw()
		sum := math.Float32frombits(rng.Uint32()&0x8fffffff | 0x30000000)
		low, high := exact(lowA), exact(highA)
		low.Mul(low, exact(lowB))
		high.Mul(high, exact(highB))
		both := rounded(low.Add(low, high))
		want := rounded(exact(sum).Add(exact(sum), exact(both)))
		if got := addTogether(sum, a, b); got != want {
			t.Fatalf("%v and the products of %08x and %08x are %v, want %v", sum, a, b, got, want)
		}
	}
}

// TestPairsAddInOrder holds the processor to the order and the rounding of its variant's addPair, on numbers of all
// sizes, infinities and NaN among them, and on small ones, whose sums are often too small.
func TestPairsAddInOrder(t *testing.T) {
	v := candidates()[0]
	if v.pairs.multiply == nil {
		t.Skip("this processor does not multiply BF16: addPair stands in for it in the other tests")
	}
	for _, m := range []microKernel{v.pairs, v.attentionPairs} {
		checkPairOrder(t, m, v.addPair)
	}
}

func checkPairOrder(t *testing.T, m microKernel, add func(sum float32, a, b uint32) float32) {
	t.Helper()
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
		panelA, panelB := slices.Clone(a), slices.Clone(b)
		if m.arrange != nil {
			m.arrange(panelA, m.mr, k)
			m.arrange(panelB, m.nr, k)
		}
		m.multiply(&tile{K: k, A: &panelA[0], ARow: 1, ACol: m.mr, B: &panelB[0], Init: &init[0], C: &c[0], CRow: m.nr, Count: 1})
		for i, got := range c {
			want := init[i%m.nr]
			for p := range k {
				want = add(want, math.Float32bits(a[p*m.mr+i/m.nr]), math.Float32bits(b[p*m.nr+i%m.nr]))
			}
			if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
				t.Fatalf("round %d: element %d is %v, want %v", round, i, got, want)
			}
		}
	}
}

// TestProcessorsSayWhatTheyMultiply: BF16 where products are of pairs, and F16 nowhere.
func TestProcessorsSayWhatTheyMultiply(t *testing.T) {
	plain, pairs := &Device{v: generic()}, &Device{v: pairsInGo(generic(), addTogether)}
	if plain.MultipliesHalves(kernels.BF16) || !pairs.MultipliesHalves(kernels.BF16) || pairs.MultipliesHalves(kernels.F16) {
		t.Error("bf16 is multiplied without pairs, or not with them, or f16 is")
	}
}

// TestKindsInFloats: a variant with products of pairs is another one's kind in float32, which the processor has too.
func TestKindsInFloats(t *testing.T) {
	var kinds []string
	for _, c := range candidates() {
		kinds = append(kinds, c.kind())
	}
	for _, c := range candidates() {
		floats := KindInFloats(c.kind())
		if (floats != c.kind()) != (c.pairs.multiply != nil) || !slices.Contains(kinds, floats) {
			t.Errorf("in float32 %s computes as %s, of %v", c.kind(), floats, kinds)
		}
	}
	for _, made := range []string{"bf16", "amd64/bf16", ""} {
		if got := KindInFloats(made); got != made {
			t.Errorf("%q, which no processor has, is %q in float32", made, got)
		}
	}
}
