package quant

import (
	"encoding/binary"
	"math"
)

// A matrix of weights [rows,cols] that products multiply rows by is packed without noise. Each number is the nearest multiple of its
// group's scale, ties to even: a group are MatrixGroup neighbours in a row, and its scale is the largest magnitude in it over 127.
//
// Rows are in panels of PanelRows, the last one filled up with zeros. A panel has a block for each group of its rows: their scales as
// float32, then for each column of the group a byte of each row. So a product reads all of it from the first byte to the last one, and
// has numbers of different rows side by side.
const (
	MatrixGroup = 64
	PanelRows   = 32
)

// MatrixBytes is the size of a matrix, a multiple of PanelRows.
func MatrixBytes(rows, cols int) int { return (rows + PanelRows - 1) / PanelRows * PanelBytes(cols) }

// PanelBytes is the size of a panel of so many columns.
func PanelBytes(cols int) int {
	return PanelRows * (ScaleBytes*((cols+MatrixGroup-1)/MatrixGroup) + cols)
}

// BlockAt is where in a panel the block of a column begins.
func BlockAt(col int) int { return PanelBytes(col / MatrixGroup * MatrixGroup) }

// PackPanel writes a panel of the rows x [at most PanelRows,cols] to b. A group that is not finite has scale NaN.
func PackPanel(b []byte, x []float32, cols int) {
	clear(b[:PanelBytes(cols)])
	for first := 0; first < cols; first += MatrixGroup {
		scales, numbers := b[:PanelRows*ScaleBytes], b[PanelRows*ScaleBytes:]
		n := min(MatrixGroup, cols-first)
		for r := range len(x) / cols {
			group := x[r*cols+first:][:n]
			scale, inverse := scaleOf(group)
			binary.LittleEndian.PutUint32(scales[r*ScaleBytes:], math.Float32bits(scale))
			if inverse == 0 {
				continue
			}
			for c, v := range group {
				numbers[c*PanelRows+r] = byte(int8(math.RoundToEven(float64(v * inverse))))
			}
		}
		b = numbers[n*PanelRows:]
	}
}

// UnpackRow fills dst with a row of a matrix of as many columns.
func UnpackRow(dst []float32, matrix []byte, row int) {
	b := matrix[row/PanelRows*PanelBytes(len(dst)):]
	for row %= PanelRows; len(dst) > 0; {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(b[row*ScaleBytes:]))
		n := min(len(dst), MatrixGroup)
		b = b[PanelRows*ScaleBytes:]
		for c := range n {
			dst[c] = float32(int8(b[c*PanelRows+row])) * scale
		}
		b, dst = b[n*PanelRows:], dst[n:]
	}
}
