package kernels

import "pnode/kernels/quant"

func quantizedWords(c Call) int { return quant.Words(c.Dims[0]) }

// groupSums counts two for each group.
func groupSums(c Call) int { return 2 * quant.Groups(c.Dims[0]) }

var quantizeTable = map[Op]OpInfo{
	OpQuantize: {
		Name: "quantize", Class: ClassElementwise, Dims: "Np", tolerance: 4e-5,
		Operands: []Operand{whole("words", quantizedWords), out("steps", groupSums), in("x", dim(0))},
		flops:    perElement(10, 1),
	},
	OpDequantize: {
		Name: "dequantize", Class: ClassElementwise, Dims: "N", tolerance: 0,
		Operands: []Operand{out("out", dim(0)), index("words", quantizedWords)},
		flops:    perElement(1, 1),
	},
}
