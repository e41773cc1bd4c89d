package kernels

var normTable = map[Op]OpInfo{
	OpLayerNormForward: {
		Name: "layernorm-forward", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{out("out", dim(0, 1)), out("mean", dim(0)), out("rstd", dim(0)), in("x", dim(0, 1)), in("w", dim(1)), in("b", dim(1))},
		flops:    perElement(8, 2),
	},
	OpAddLayerNormForward: {
		Name: "add-layernorm-forward", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{out("out", dim(0, 1)), out("sum", dim(0, 1)), out("mean", dim(0)), out("rstd", dim(0)), yields(in("a", dim(0, 1))), yields(in("b", dim(0, 1))), in("w", dim(1)), in("bias", dim(1))},
		flops:    perElement(9, 2),
	},
	OpLayerNormBackwardInput: {
		Name: "layernorm-backward-input", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{out("dx", dim(0, 1)), yields(in("dout", dim(0, 1))), yields(in("x", dim(0, 1))), in("w", dim(1)), in("mean", dim(0)), in("rstd", dim(0)), optional(yields(in("residual", dim(0, 1))))},
		flops:    perElement(12, 2),
	},
	OpLayerNormBackwardWeight: {
		Name: "layernorm-backward-weight", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{inOut("dw", dim(1)), inOut("db", dim(1)), in("dout", dim(0, 1)), in("x", dim(0, 1)), in("mean", dim(0)), in("rstd", dim(0))},
		flops:    perElement(5, 2),
	},
	OpRMSNormForward: {
		Name: "rmsnorm-forward", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{out("out", dim(0, 1)), out("rstd", dim(0)), in("x", dim(0, 1)), in("w", dim(1))},
		flops:    perElement(5, 2),
	},
	OpAddRMSNormForward: {
		Name: "add-rmsnorm-forward", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{out("out", dim(0, 1)), out("sum", dim(0, 1)), out("rstd", dim(0)), yields(in("a", dim(0, 1))), yields(in("b", dim(0, 1))), in("w", dim(1))},
		flops:    perElement(6, 2),
	},
	OpRMSNormBackwardInput: {
		Name: "rmsnorm-backward-input", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{out("dx", dim(0, 1)), yields(in("dout", dim(0, 1))), yields(in("x", dim(0, 1))), in("w", dim(1)), in("rstd", dim(0)), optional(yields(in("residual", dim(0, 1))))},
		flops:    perElement(9, 2),
	},
	OpRMSNormBackwardWeight: {
		Name: "rmsnorm-backward-weight", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{inOut("dw", dim(1)), in("dout", dim(0, 1)), in("x", dim(0, 1)), in("rstd", dim(0))},
		flops:    perElement(3, 2),
	},
}
