package cpu

import "math"

// verify runs the micro-kernel against float64 arithmetic, with row and column strides
// and with and without accumulation, and checks that it writes its tile and no more.
func (v *variant) verify() bool {
	for _, k := range []int{1, 3, 4, 6, 37} {
		for accumulate := range 2 {
			if !v.verifyTile(k, accumulate) {
				return false
			}
		}
	}
	return true
}

func (v *variant) verifyTile(k, accumulate int) bool {
	const count = 2
	rows := count * v.mr
	aRow, aCol := k+3, 1
	if accumulate == 1 {
		aRow, aCol = 1, rows+2
	}
	a, b := ramp(rows*(k+3)+k*(rows+2), 7), ramp(k*v.nr, 11)
	init, cRow := ramp(v.nr, 5), v.nr+4
	c := ramp(rows*cRow, 13)
	old := append([]float32(nil), c...)
	v.multiply(&tile{
		K: k, A: &a[0], ARow: aRow, ACol: aCol, B: &b[0], Init: &init[0],
		C: &c[0], CRow: cRow, Accumulate: accumulate, Count: count, AStep: v.mr * aRow,
	})
	for i, got := range c {
		row, col := i/cRow, i%cRow
		want := float64(old[i])
		if col < v.nr {
			want = want*float64(accumulate) + float64(init[col])
			for p := range k {
				want += float64(a[row*aRow+p*aCol]) * float64(b[p*v.nr+col])
			}
		}
		if !(math.Abs(float64(got)-want) <= 1e-5) {
			return false
		}
	}
	return true
}

// ramp is n numbers between -0.5 and 0.5 that differ from their neighbours.
func ramp(n, step int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(i*step%97)/97 - 0.5
	}
	return x
}
