package cpu

import (
	"fmt"
	"maps"
	"math"
)

// verifyDirect is verify for kernels that read B where it is.
func (m *microKernel) verifyDirect() error {
	for _, k := range []int{1, 3, 8, 21} {
		for rows, multiply := range m.direct.byRows() {
			if !m.verifyDirectTile(multiply, directTile{rows: rows, k: k}) {
				return fmt.Errorf("direct is wrong for %dx%d, K %d", rows, m.nr, k)
			}
		}
		for rows, multiply := range m.directHalves.byRows() {
			if !m.verifyDirectTile(multiply, directTile{rows: rows, k: k, halves: true}) {
				return fmt.Errorf("directHalves is wrong for %dx%d, K %d", rows, m.nr, k)
			}
		}
	}
	return nil
}

// byRows are the kernels that there are.
func (d directKernels) byRows() map[int]directKernel {
	list := map[int]directKernel{1: d.row, directFew: d.few, directRows: d.rows}
	maps.DeleteFunc(list, func(_ int, d directKernel) bool { return d == nil })
	return list
}

// directTile says what a direct kernel is tried with: K in elements of B, which are floats or pairs of BF16 numbers.
type directTile struct {
	rows, k int
	halves  bool
}

// verifyDirectTile uses columns of B and steps of A with gaps between them.
func (m *microKernel) verifyDirectTile(multiply directKernel, try directTile) bool {
	stride, aStep, steps := try.k+3, try.rows+2, 1
	b := ramp(m.nr*stride, 11)
	value := func(j, p int) float64 { return float64(b[j*stride+p]) }
	if try.halves {
		steps, b = 2, pairRamp(m.nr*stride, 11, 1)
		value = func(j, p int) float64 {
			bits := math.Float32bits(b[j*stride+p/2])
			if p%2 == 0 {
				bits <<= 16
			}
			return float64(math.Float32frombits(bits &^ 0xffff))
		}
	}
	a, init, out := ramp(steps*try.k*aStep, 7), ramp(m.nr, 5), ramp(try.rows*m.nr+guard, 13)
	want := append([]float32(nil), out...)
	for i := range try.rows * m.nr {
		sum := float64(init[i%m.nr])
		for p := range steps * try.k {
			sum += float64(a[p*aStep+i/m.nr]) * value(i%m.nr, p)
		}
		want[i] = float32(sum)
	}
	multiply(&out[0], &init[0], &a[0], &b[0], aStep, stride, try.k)
	return differs(out, want, 1e-5) < 0
}
