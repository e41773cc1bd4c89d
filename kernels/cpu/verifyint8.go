package cpu

import (
	"fmt"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// verifyInt8 tries what reads int8 weights, from the begin of a block on and from within one, up to several blocks further.
func verifyInt8(v *variant) error {
	const cols = 2*quant.MatrixGroup + 21
	weights := ramp(quant.PanelRows*cols, 11)
	panel := make([]float32, quant.PanelBytes(cols)/floatBytes)
	quant.PackPanel(kernels.Float32Bytes(panel), weights, cols)
	for r := range quant.PanelRows {
		quant.UnpackRow(weights[r*cols:][:cols], kernels.Float32Bytes(panel), r)
	}
	for _, part := range []int8Part{{skip: 0, k: 3}, {skip: 8, k: quant.MatrixGroup - 8}, {skip: 40, k: cols - 40}} {
		part.panel, part.weight = panel, func(row, p int) float64 { return float64(weights[row*cols+part.skip+p]) }
		if !part.verifyWiden(v.widenInt8) {
			return fmt.Errorf("widenInt8 is wrong for K %d from %d on", part.k, part.skip)
		}
		for rows, multiply := range v.product.directInt8.byRows() {
			if !part.verifyDirect(rows, multiply) {
				return fmt.Errorf("directInt8 is wrong for %dx%d, K %d from %d on", rows, quant.PanelRows, part.k, part.skip)
			}
		}
	}
	return nil
}

// int8Part are K weights of each row of a panel, behind those that are skipped.
type int8Part struct {
	skip, k int
	panel   []float32
	weight  func(row, p int) float64
}

func (w int8Part) verifyWiden(widen int8Widen) bool {
	const step = quant.PanelRows + 5
	out, want := ramp(w.k*step, 3), ramp(w.k*step, 3)
	for p := range w.k {
		for j := range quant.PanelRows {
			want[p*step+j] = float32(w.weight(j, p))
		}
	}
	widen(&out[0], &w.panel[0], step, w.skip, w.k)
	return differs(out, want, 0) < 0
}

// verifyDirect uses steps of A with gaps between them.
func (w int8Part) verifyDirect(rows int, multiply directKernel) bool {
	const columns = quant.PanelRows
	aStep := rows + 2
	a, init := ramp(w.k*aStep, 7), ramp(columns, 5)
	out, want := ramp(rows*columns+guard, 13), ramp(rows*columns+guard, 13)
	for i := range rows * columns {
		sum := float64(init[i%columns])
		for p := range w.k {
			sum += float64(a[p*aStep+i/columns]) * w.weight(i%columns, p)
		}
		want[i] = float32(sum)
	}
	multiply(&out[0], &init[0], &a[0], &w.panel[0], aStep, w.skip, w.k)
	return differs(out, want, 1e-5) < 0
}
