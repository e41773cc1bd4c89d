package cpu

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"pnode/kernels"
	"pnode/kernels/conform"
)

// pairsInGo gives a variant products in pairs, with tiles of its own size, for processors that have none.
func pairsInGo(v *variant) *variant {
	mr, nr := v.product.mr, v.product.nr
	v.name += " with pairs in Go"
	v.pairs = v.product
	v.pairs.copyB, v.pairs.multiplyPack, v.pairs.few = nil, nil, nil
	v.pairs.direct, v.pairs.directHalves = directKernels{}, directKernels{}
	v.pairs.multiply = func(t *tile) { multiplyPairsAny(t, mr, nr) }
	v.pairA, v.pairs.pairB = pairsGeneric(mr), pairsGeneric(nr)
	if v.softmaxHalves == nil {
		v.softmaxHalves, v.softmaxGradHalves = softmaxHalvesGeneric, softmaxGradHalvesGeneric
	}
	return v
}

// multiplyPairsAny is the micro-kernel of pairs for any tile.
func multiplyPairsAny(t *tile, mr, nr int) {
	a, b := unsafe.Slice(t.A, (t.Count-1)*t.AStep+(mr-1)*t.ARow+(t.K-1)*t.ACol+1), unsafe.Slice(t.B, t.K*nr)
	init, c := unsafe.Slice(t.Init, nr), unsafe.Slice(t.C, (t.Count*mr-1)*t.CRow+nr)
	for i := range t.Count * mr {
		for j := range nr {
			sum := init[j]
			for p := range t.K {
				sum = addPair(sum, math.Float32bits(a[i/mr*t.AStep+i%mr*t.ARow+p*t.ACol]), math.Float32bits(b[p*nr+j]))
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
	dev := newDevice(t, Options{Threads: 2})
	v := *candidates()[0].variant
	dev.v = pairsInGo(&v)
	if err := dev.v.verify(); err != nil {
		t.Fatal(err)
	}
	for _, op := range []kernels.Op{kernels.OpMatMul, kernels.OpAttentionForward, kernels.OpAttentionBackward} {
		conform.RunOpHalfForms(t, dev, op, kernels.BF16)
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
	imitation.v = pairsInGo(&v)
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
	dev.v = pairsInGo(&v)
	checkParts(t, dev, kernels.BF16, kernels.AttentionShape{B: 1, T: 299, H: 1, K: 1, D: 8}, []int{0, 32, 224, 256, 299}, true)
}

// TestVerifyFindsWrongPairs runs the start-up check on pairs that are added or packed wrong.
func TestVerifyFindsWrongPairs(t *testing.T) {
	for name, spoil := range map[string]func(v *variant){
		"multiply of pairs is wrong for K 1, accumulate 0, numbers of 1": func(v *variant) {
			v.pairs.multiply = func(t *tile) {
				multiplyPairsAny(t, 4, 4)
				*t.C = math.Nextafter32(*t.C, 2)
			}
		},
		"multiply of pairs is wrong for K 1, accumulate 0, numbers of 2.1684043e-19": func(v *variant) { // keeps what counts as zero
			v.pairs.multiply = func(t *tile) {
				multiplyPairsAny(t, 4, 4)
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
		v := pairsInGo(generic())
		if err := v.verify(); err != nil {
			t.Fatal(err)
		}
		spoil(v)
		if err := v.verify(); err == nil || !strings.HasPrefix(err.Error(), name) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// TestAddPair has sums in which the order, a rounding and the smallest numbers show.
func TestAddPair(t *testing.T) {
	bf16 := func(x float32) uint32 { return math.Float32bits(x) >> 16 }
	for _, c := range []struct{ sum, low, high, factor, want float32 }{
		{0, 1, 2, 3, 9},
		{1, 0x1p-12, 0x1p-12, 0x1p-12, 1},                         // each is half of the last digit: to even, twice
		{1 + 0x1p-23, 0x1p-12, 0x1p-12, 0x1p-12, 1 + 0x1p-22},     // the first goes to even, the second stays there
		{0x1p127, -0x1p120, 0x1p120, 0x1p7, float32(math.Inf(1))}, // the upper one first
		{0x1p-127, 0, 0, 1, 0},
		{0, 0x1p-127, 0, 1, 0},
		{0, 0x1p-64, 0, 0x1p-64, 0},
	} {
		if got := addPair(c.sum, bf16(c.low)|bf16(c.high)<<16, bf16(c.factor)|bf16(c.factor)<<16); got != c.want {
			t.Errorf("%v and (%v, %v) times %v are %v, want %v", c.sum, c.low, c.high, c.factor, got, c.want)
		}
	}
}

// TestProcessorsSayWhatTheyMultiply: BF16 where products are of pairs, and F16 nowhere.
func TestProcessorsSayWhatTheyMultiply(t *testing.T) {
	plain, pairs := &Device{v: generic()}, &Device{v: pairsInGo(generic())}
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
}
