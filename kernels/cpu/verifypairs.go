package cpu

import (
	"fmt"
	"math"
	"slices"
)

// verifyPairs is verify for products in pairs. A processor must give the very bits of addPair, so that
// all of a kind compute the same.
func (v *variant) verifyPairs() error {
	if v.pairs.mr != v.product.mr || v.pairs.nr != v.product.nr {
		return fmt.Errorf("tiles of pairs are %dx%d, of floats %dx%d", v.pairs.mr, v.pairs.nr, v.product.mr, v.product.nr)
	}
	for _, k := range []int{1, 3, 8, 21} {
		if err := v.verifyPairTiles("pairs", &v.pairs, k); err != nil {
			return err
		}
		if err := v.verifyPairTiles("pairs in attention", &v.attentionPairs, k); err != nil {
			return err
		}
		if !verifyPacking(v.pairA, v.pairs.mr, k) {
			return fmt.Errorf("pairA is wrong for K %d", k)
		}
		for _, m := range []*microKernel{&v.pairs, &v.attentionPairs} {
			if !verifyPacking(m.pairB, m.nr, k) {
				return fmt.Errorf("pairB is wrong for K %d", k)
			}
		}
	}
	// The operands that are stored in the other direction are packed like floats.
	for _, m := range []*microKernel{&v.pairs, &v.attentionPairs} {
		if err := (packing{name: "B of pairs", unit: m.nr, transpose: m.transposeB}).verify(); err != nil {
			return err
		}
	}
	return nil
}

// verifyPairTiles tries all micro-kernels of m.
func (v *variant) verifyPairTiles(name string, m *microKernel, k int) error {
	for _, scale := range []float32{1, tinyScale} {
		for accumulate := range 2 {
			if !m.verifyPairTile(m.multiply, pairTile{k, accumulate, scale, false, v.addPair}) {
				return fmt.Errorf("multiply of %s is wrong for K %d, accumulate %d, numbers of %g", name, k, accumulate, scale)
			}
			few := &microKernel{mr: m.fewRows, nr: m.nr}
			if m.few != nil && !few.verifyPairTile(m.few, pairTile{k, accumulate, scale, false, v.addPair}) {
				return fmt.Errorf("few of %s is wrong for K %d, accumulate %d, numbers of %g", name, k, accumulate, scale)
			}
			for rows, multiply := range m.direct.byRows() {
				if accumulate == 0 && !m.verifyDirectPairs(multiply, rows, pairTile{k: k, scale: scale, add: v.addPair}) {
					return fmt.Errorf("direct of %s is wrong for %dx%d, K %d, numbers of %g", name, rows, m.nr, k, scale)
				}
			}
			if packing := m.multiplyPack; packing != nil && !m.verifyPairTile(packing, pairTile{k, accumulate, scale, true, v.addPair}) {
				return fmt.Errorf("multiplyPack of %s is wrong for K %d, accumulate %d, numbers of %g", name, k, accumulate, scale)
			}
		}
	}
	return nil
}

// tinyScale makes factors whose products are about the smallest normal number, below which they count as zero.
const tinyScale = 0x1p-62

// pairTile says what a micro-kernel of pairs is tried with. The scale is of the factors.
type pairTile struct {
	k, accumulate int
	scale         float32
	packs         bool
	add           func(sum float32, a, b uint32) float32
}

// verifyPairTile is verifyTile, to the bit and with rows of A that lie together, or panels where they are arranged.
func (m *microKernel) verifyPairTile(multiply func(t *tile), try pairTile) bool {
	k, accumulate, count := try.k, try.accumulate, 2
	if try.packs {
		count = 1
	}
	rows, aRow, cRow := count*m.mr, k+3, m.nr+4
	a, b := pairRamp(rows*aRow, 7, try.scale), pairRamp(k*m.nr, 11, try.scale)
	init, c, old := ramp(m.nr, 5), ramp(rows*cRow, 13), ramp(rows*cRow, 13)
	for i := range init {
		init[i] *= try.scale * try.scale
	}
	packed, wantPacked := pairRamp(k*m.mr+guard, 3, 1), pairRamp(k*m.mr+guard, 3, 1)
	for i := range k * m.mr {
		if try.packs {
			wantPacked[i] = a[i%m.mr*aRow+i/m.mr]
		}
	}
	args := tile{
		K: k, A: &a[0], ARow: aRow, ACol: 1, B: &b[0], Init: &init[0], Packed: &packed[0],
		C: &c[0], CRow: cRow, Accumulate: accumulate, Count: count, AStep: m.mr * aRow,
	}
	if m.arrange != nil {
		panelsA, panelsB := make([]float32, rows*k), slices.Clone(b)
		for i := range panelsA {
			panelsA[i] = a[(i/(m.mr*k)*m.mr+i%m.mr)*aRow+i/m.mr%k]
		}
		m.arrange(panelsA, m.mr, k)
		m.arrange(panelsB, m.nr, k)
		args.A, args.ARow, args.ACol, args.AStep, args.B = &panelsA[0], 1, m.mr, m.mr*k, &panelsB[0]
	}
	multiply(&args)
	for i, got := range c {
		row, col, want := i/cRow, i%cRow, old[i]
		if col < m.nr {
			sum := init[col]
			for p := range k {
				sum = try.add(sum, math.Float32bits(a[row*aRow+p]), math.Float32bits(b[p*m.nr+col]))
			}
			if want = sum; accumulate != 0 {
				want += old[i]
			}
		}
		if math.Float32bits(got) != math.Float32bits(want) {
			return false
		}
	}
	return differs(packed, wantPacked, 0) < 0
}

// verifyDirectPairs is verifyDirectTile, to the bit.
func (m *microKernel) verifyDirectPairs(multiply directKernel, rows int, try pairTile) bool {
	k, scale := try.k, try.scale
	stride, aStep := k+3, rows+2
	a, b, init := pairRamp(k*aStep, 7, scale), pairRamp(m.nr*stride, 11, scale), ramp(m.nr, 5)
	got, want := ramp(rows*m.nr+guard, 13), ramp(rows*m.nr+guard, 13)
	for i := range init {
		init[i] *= scale * scale
	}
	for i := range rows * m.nr {
		want[i] = init[i%m.nr]
		for p := range k {
			want[i] = try.add(want[i], math.Float32bits(a[p*aStep+i/m.nr]), math.Float32bits(b[i%m.nr*stride+p]))
		}
	}
	multiply(&got[0], &init[0], &a[0], &b[0], aStep, stride, k)
	return differs(got, want, 0) < 0
}

// verifyPacking packs more panels than a group has, to places that are apart.
func verifyPacking(pack packPairs, unit, k int) bool {
	const panels = groupPanels + 1
	stride, step := panels*unit+3, k*unit+5
	src := make([]uint16, 2*k*stride)
	narrowGeneric(src, ramp(len(src), 7))
	got, want := ramp(panels*step+guard, 5), ramp(panels*step+guard, 5)
	pack(got[:panels*step], src, step, stride, k, panels)
	pairsGeneric(unit)(want, src, step, stride, k, panels)
	return differs(got, want, 0) < 0
}

// pairRamp is n pairs of numbers between -0.5 and 0.5, times a scale.
func pairRamp(n, step int, scale float32) []float32 {
	x := make([]float32, n)
	for i, v := range ramp(2*n, step) {
		x[i/2] = math.Float32frombits(math.Float32bits(x[i/2])>>16 | uint32(nearestBF16(math.Float32bits(v*scale)))<<16)
	}
	return x
}
