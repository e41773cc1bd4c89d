package kernels

import "pnode/kernels/quant"

// MatrixWords is how many words int8 weights [rows,cols] take.
func MatrixWords(rows, cols int) int { return quant.MatrixBytes(rows, cols) / 4 }

// PanelRows is how many rows of int8 weights lie together.
const PanelRows = quant.PanelRows

// PackInt8 writes the rows x [rows,cols], from the first one of a panel on, as int8 weights to words [MatrixWords].
func PackInt8(words []int32, x []float32, cols int) {
	b := Int32Bytes(words)
	for len(x) > 0 {
		panel := x[:min(len(x), PanelRows*cols)]
		quant.PackPanel(b, panel, cols)
		b, x = b[quant.PanelBytes(cols):], x[len(panel):]
	}
}

// matrix is a count of the words of int8 weights whose rows and columns are these dimensions.
func matrix(rows, cols int) func(Call) int {
	return func(c Call) int { return MatrixWords(c.Dims[rows], c.Dims[cols]) }
}

var int8Table = map[Op]OpInfo{
	OpMatMulInt8: {
		Name: "matmul-int8", Class: ClassMatMul, Dims: "MNK", Optional: true, tolerance: 4e-6,
		Operands: []Operand{out("out", dim(0, 1)), in("a", dim(0, 2)), index("words", matrix(1, 2)), optional(in("bias", dim(1)))},
		flops:    perElement(2, 3),
	},
	OpEmbedInt8: {
		Name: "embed-int8", Class: ClassElementwise, Dims: "BTCV", Optional: true, tolerance: 1e-6,
		Operands: []Operand{
			out("out", dim(0, 1, 2)), index("tokens", dim(0, 1)),
			sparse(index("words", matrix(3, 2)), func(c Call) int { return c.Dims[0] * c.Dims[1] * MatrixWords(1, c.Dims[2]) / quant.PanelRows }),
			optional(longer(in("wpe", dim(1, 2)))),
		},
		flops: perElement(2, 3),
	},
}
