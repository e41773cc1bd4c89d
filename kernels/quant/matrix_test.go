package quant

import (
	"math"
	"math/rand/v2"
	"testing"
)

// packed is a matrix, panel by panel.
func packed(x []float32, rows, cols int) []byte {
	b := make([]byte, MatrixBytes(rows, cols))
	for first := 0; first < rows; first += PanelRows {
		PackPanel(b[first/PanelRows*PanelBytes(cols):], x[first*cols:min(rows, first+PanelRows)*cols], cols)
	}
	return b
}

// TestMatrixIsNearest: each number is within half a step of what was packed, the largest one of a group is exact to its last digits, and
// each element has the byte and the scale that the layout says.
func TestMatrixIsNearest(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{1, 1}, {31, 33}, {32, MatrixGroup}, {33, MatrixGroup + 1}, {70, 2*MatrixGroup + 5}} {
		rows, cols := shape[0], shape[1]
		x := make([]float32, rows*cols)
		for i := range x {
			x[i] = float32(rng.NormFloat64())
		}
		b, row := packed(x, rows, cols), make([]float32, cols)
		for r := range rows {
			UnpackRow(row, b, r)
			for c, got := range row {
				want, most := x[r*cols+c], float32(0)
				for _, v := range x[r*cols+c/MatrixGroup*MatrixGroup : r*cols+min(cols, c/MatrixGroup*MatrixGroup+MatrixGroup)] {
					most = max(most, v, -v)
				}
				off := math.Abs(float64(got) - float64(want))
				if off > float64(most)/254*1.0001 || want == most && off > 1e-6*float64(most) {
					t.Fatalf("%v: element %d,%d of %v is %v, want %v", shape, r, c, most, got, want)
				}
				block := b[r/PanelRows*PanelBytes(cols)+BlockAt(c):]
				number := int8(block[PanelRows*ScaleBytes+c%MatrixGroup*PanelRows+r%PanelRows])
				if float32(number)*(most/127) != got {
					t.Fatalf("%v: element %d,%d is %v, its byte is %d of %v", shape, r, c, got, number, most/127)
				}
			}
		}
	}
}

// TestMatrixOfOtherNumbers packs zeros, numbers too small for a scale, huge ones, and what is not finite.
func TestMatrixOfOtherNumbers(t *testing.T) {
	inf := float32(math.Inf(1))
	for _, c := range []struct{ in, want [3]float32 }{
		{[3]float32{}, [3]float32{}},
		{[3]float32{1e-35, 0, -1e-35}, [3]float32{}},
		{[3]float32{3e38, -3e38, 0}, [3]float32{3e38, -3e38, 0}},
		{[3]float32{1, inf, 2}, [3]float32{inf - inf, inf - inf, inf - inf}},
	} {
		row := make([]float32, 3)
		UnpackRow(row, packed(c.in[:], 1, 3), 0)
		for i, want := range c.want {
			if got := row[i]; !(math.Abs(float64(got-want)) <= 1e-6*math.Abs(float64(want))) && !(got != got && want != want) {
				t.Errorf("%v is %v, want %v", c.in, row, c.want)
			}
		}
	}
}
