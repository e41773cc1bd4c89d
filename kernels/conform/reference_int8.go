package conform

import (
	"encoding/binary"
	"math/rand/v2"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// The weights of both are package quant's, whose layout its own tests pin.

func matMulInt8(c kernels.Call, args [][]float64) {
	m, n, k := c.Dims[0], c.Dims[1], c.Dims[2]
	matMul(kernels.MatMul(kernels.View{}, kernels.View{}, kernels.View{}, kernels.View{}, m, n, k, kernels.TransB),
		[][]float64{args[0], args[1], unpacked(args[2], n, k), args[3]})
}

func embedInt8(c kernels.Call, args [][]float64) {
	embedForward(c, [][]float64{args[0], args[1], unpacked(args[2], c.Dims[3], c.Dims[2]), args[3]})
}

// unpacked are the weights [rows,cols] in some words.
func unpacked(words []float64, rows, cols int) (x []float64) {
	b := make([]byte, 0, 4*len(words))
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, uint32(int32(w)))
	}
	row := make([]float32, cols)
	for r := range rows {
		quant.UnpackRow(row, b, r)
		for _, v := range row {
			x = append(x, float64(v))
		}
	}
	return x
}

// packedMatrix fills words with weights [rows,cols], of which some groups are zeros.
func packedMatrix(rng *rand.Rand, words []float64, rows, cols int) {
	x, packed := make([]float32, rows*cols), make([]int32, len(words))
	for i := range x {
		if x[i] = float32(rng.NormFloat64()); i/quant.MatrixGroup%9 == 8 {
			x[i] = 0
		}
	}
	kernels.PackInt8(packed, x, cols)
	for i, w := range packed {
		words[i] = float64(w)
	}
}
