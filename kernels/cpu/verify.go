package cpu

import (
	"fmt"
	"math"
)

// verify runs everything that a variant has and says what computes wrong: the
// micro-kernel and the packing against their definition, the loops against plain Go.
// It takes some milliseconds, so that no processor trains on kernels that were never
// tried on its like.
func (v *variant) verify() error {
	for _, m := range []*microKernel{&v.product, &v.attention} {
		if err := m.verify(); err != nil {
			return err
		}
	}
	if err := (packing{"A", v.product.mr, v.copyA, v.transposeA}).verify(); err != nil {
		return err
	}
	if err := verifyInt8(v); err != nil {
		return err
	}
	if v.pairs.multiply != nil {
		if err := v.verifyPairs(); err != nil {
			return err
		}
	}
	for _, n := range []int{3, 8, 16, 47} {
		if err := v.verifyLoops(n); err != nil {
			return err
		}
	}
	return nil
}

func (m *microKernel) verify() error {
	if err := m.verifyTiles("multiply", m.multiply, false); err != nil {
		return err
	}
	if m.multiplyPack != nil {
		if err := m.verifyTiles("multiplyPack", m.multiplyPack, true); err != nil {
			return err
		}
	}
	if few := (&microKernel{mr: m.fewRows, nr: m.nr}); m.few != nil {
		if err := few.verifyTiles("few", m.few, false); err != nil {
			return err
		}
	}
	if err := m.verifyDirect(); err != nil {
		return err
	}
	return packing{"B", m.nr, m.copyB, m.transposeB}.verify()
}

// verifyTiles tries a micro-kernel of m's size, with or without packing.
func (m *microKernel) verifyTiles(name string, multiply func(t *tile), packs bool) error {
	for _, k := range []int{1, 3, 4, 6, 37} {
		for accumulate := range 2 {
			if !m.verifyTile(multiply, packs, k, accumulate) {
				return fmt.Errorf("%s is wrong for %dx%d, K %d, accumulate %d", name, m.mr, m.nr, k, accumulate)
			}
		}
	}
	return nil
}

// verifyTile uses row and column strides, and checks that the micro-kernel writes its
// tiles, one if it packs, and no more.
func (m *microKernel) verifyTile(multiply func(t *tile), packs bool, k, accumulate int) bool {
	count := 2
	if packs {
		count = 1
	}
	rows := count * m.mr
	aRow, aCol := k+3, 1
	if accumulate == 1 {
		aRow, aCol = 1, rows+2
	}
	a, b := ramp(rows*(k+3)+k*(rows+2), 7), ramp(k*m.nr, 11)
	init, cRow := ramp(m.nr, 5), m.nr+4
	c := ramp(rows*cRow, 13)
	old := append([]float32(nil), c...)
	packed, wantPacked := ramp(k*m.mr+guard, 3), ramp(k*m.mr+guard, 3)
	for i := range k * m.mr {
		if packs {
			wantPacked[i] = a[i%m.mr*aRow+i/m.mr*aCol]
		}
	}
	multiply(&tile{
		K: k, A: &a[0], ARow: aRow, ACol: aCol, B: &b[0], Init: &init[0], Packed: &packed[0],
		C: &c[0], CRow: cRow, Accumulate: accumulate, Count: count, AStep: m.mr * aRow,
	})
	for i, got := range c {
		row, col := i/cRow, i%cRow
		want := float64(old[i])
		if col < m.nr {
			want = want*float64(accumulate) + float64(init[col])
			for p := range k {
				want += float64(a[row*aRow+p*aCol]) * float64(b[p*m.nr+col])
			}
		}
		if !(math.Abs(float64(got)-want) <= 1e-5) {
			return false
		}
	}
	return differs(packed, wantPacked, 0) < 0
}

// packing packs one side of a product; copy may be nil.
type packing struct {
	name      string
	unit      int
	copy      packCopy
	transpose packTranspose
}

func (s packing) verify() error {
	for _, k := range []int{1, 8, 11} {
		if err := s.verifyDepth(k); err != nil {
			return err
		}
	}
	return nil
}

// verifyDepth packs more panels than a group has, and transposes one.
func (s packing) verifyDepth(k int) error {
	const panels = 2*groupPanels + 1
	wide, deep := panels*s.unit+3, k+3
	src := ramp(wide*k+deep*s.unit, 7)
	copied, transposed := ramp(panels*s.unit*k+guard, 5), ramp(s.unit*k+guard, 5)
	wantCopied, wantTransposed := ramp(len(copied), 5), ramp(len(transposed), 5)
	for p := range k {
		for j := range panels * s.unit {
			wantCopied[(j/s.unit*k+p)*s.unit+j%s.unit] = src[p*wide+j]
		}
		for j := range s.unit {
			wantTransposed[p*s.unit+j] = src[j*deep+p]
		}
	}
	s.transpose(transposed[:len(transposed)-guard], src, deep, k)
	if s.copy != nil {
		s.copy(copied[:len(copied)-guard], src, wide, k, panels)
		if i := differs(copied, wantCopied, 0); i >= 0 {
			return fmt.Errorf("copy%s is wrong for K %d at %d", s.name, k, i)
		}
	}
	if i := differs(transposed, wantTransposed, 0); i >= 0 {
		return fmt.Errorf("transpose%s is wrong for K %d at %d", s.name, k, i)
	}
	return nil
}

// differs is the first place where a and b differ by more than the tolerance, relative
// beyond 1, or -1.
func differs(a, b []float32, tolerance float64) int {
	for i, want := range b {
		if !(math.Abs(float64(a[i])-float64(want)) <= tolerance*max(1, math.Abs(float64(want)))) {
			return i
		}
	}
	return -1
}

// ramp is n numbers between -0.5 and 0.5 that differ from their neighbours.
func ramp(n, step int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i*step%97)/97 - 0.5
	}
	return x
}
