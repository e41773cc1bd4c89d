package kernels

import "errors"

// dim makes a count that is the product of the dimensions with these indices.
func dim(idx ...int) func(Call) int {
	return func(c Call) int {
		n := 1
		for _, i := range idx {
			n *= c.Dims[i]
		}
		return n
	}
}

func in(name string, count func(Call) int) Operand {
	return Operand{Name: name, Role: In, DType: F32, count: count}
}

func index(name string, count func(Call) int) Operand {
	return Operand{Name: name, Role: In, DType: I32, count: count}
}

func out(name string, count func(Call) int) Operand {
	return Operand{Name: name, Role: Out, DType: F32, count: count}
}

func inOut(name string, count func(Call) int) Operand {
	return Operand{Name: name, Role: InOut, DType: F32, count: count}
}

func scratch(name string, count func(Call) int) Operand {
	return Operand{Name: name, Role: Scratch, DType: F32, Longer: true, count: count}
}

func optional(o Operand) Operand {
	o.Optional = true
	return o
}

// sparse operands are moved only in rows that the call names: count elements of them.
func sparse(o Operand, count func(Call) int) Operand {
	o.touched = count
	return o
}

func longer(o Operand) Operand {
	o.Longer = true
	return o
}

// perElement makes a FLOP count of k operations for each element of a [D0,D1,...] array
// of the first n dimensions.
func perElement(k int64, n int) func([6]int) int64 {
	return func(d [6]int) int64 {
		total := k
		for _, x := range d[:n] {
			total *= int64(x)
		}
		return total
	}
}

// Element counts of the attention ops; Dims are B, T, H, K, D.
func attentionQKV(c Call) int {
	return c.Dims[0] * c.Dims[1] * (c.Dims[2] + 2*c.Dims[3]) * c.Dims[4]
}

var (
	attentionOut = dim(0, 1, 2, 4)
	attentionLSE = dim(0, 1, 2)
)

// attentionFLOPs counts `products` causal products of 2*D operations for each of the
// T(T+1)/2 pairs of positions.
func attentionFLOPs(products int64) func([6]int) int64 {
	return func(d [6]int) int64 {
		b, t, h, dim := int64(d[0]), int64(d[1]), int64(d[2]), int64(d[4])
		return products * b * h * dim * t * (t + 1)
	}
}

func checkAttention(d [6]int) error {
	if d[2]%d[3] != 0 {
		return errors.New("the heads H are no multiple of the key-value heads K")
	}
	return nil
}

// table has one row per operation. Tolerances are for float32: n additions in blocks
// lose about sqrt(n) rounding errors of 6e-8 relative to the sum of magnitudes.
var table = [opCount]OpInfo{
	OpMatMul: {
		Name: "matmul", Class: ClassMatMul, Dims: "MNK", Flags: TransA | TransB | Accumulate, tolerance: 4e-6,
		Operands: []Operand{out("out", dim(0, 1)), in("a", dim(0, 2)), in("b", dim(1, 2)), optional(in("bias", dim(1)))},
		flops:    perElement(2, 3),
	},
	OpColumnSum: {
		Name: "column-sum", Class: ClassElementwise, Dims: "NC", Flags: Accumulate, tolerance: 4e-6,
		Operands: []Operand{out("out", dim(1)), in("in", dim(0, 1))},
		flops:    perElement(1, 2),
	},
	OpEmbedForward: {
		Name: "embed-forward", Class: ClassElementwise, Dims: "BTCV", tolerance: 1e-6,
		Operands: []Operand{out("out", dim(0, 1, 2)), index("tokens", dim(0, 1)), sparse(in("wte", dim(3, 2)), dim(0, 1, 2)), optional(longer(in("wpe", dim(1, 2))))},
		flops:    perElement(1, 3),
	},
	OpEmbedBackward: {
		Name: "embed-backward", Class: ClassElementwise, Dims: "BTCV", tolerance: 1e-5,
		Operands: []Operand{sparse(inOut("dwte", dim(3, 2)), dim(0, 1, 2)), optional(longer(inOut("dwpe", dim(1, 2)))), in("dout", dim(0, 1, 2)), index("tokens", dim(0, 1))},
		flops:    perElement(2, 3),
	},
	OpLayerNormForward: {
		Name: "layernorm-forward", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{out("out", dim(0, 1)), out("mean", dim(0)), out("rstd", dim(0)), in("x", dim(0, 1)), in("w", dim(1)), in("b", dim(1))},
		flops:    perElement(8, 2),
	},
	OpLayerNormBackwardInput: {
		Name: "layernorm-backward-input", Class: ClassElementwise, Dims: "NC", Flags: Accumulate, tolerance: 1e-5,
		Operands: []Operand{out("dx", dim(0, 1)), in("dout", dim(0, 1)), in("x", dim(0, 1)), in("w", dim(1)), in("mean", dim(0)), in("rstd", dim(0))},
		flops:    perElement(12, 2),
	},
	OpLayerNormBackwardWeight: {
		Name: "layernorm-backward-weight", Class: ClassElementwise, Dims: "NC", tolerance: 1e-5,
		Operands: []Operand{inOut("dw", dim(1)), inOut("db", dim(1)), in("dout", dim(0, 1)), in("x", dim(0, 1)), in("mean", dim(0)), in("rstd", dim(0))},
		flops:    perElement(5, 2),
	},
	OpAttentionForward: {
		Name: "attention-forward", Class: ClassAttention, Dims: "BTHKD", tolerance: 1e-5, check: checkAttention,
		Operands: []Operand{out("out", attentionOut), out("lse", attentionLSE), in("qkv", attentionQKV)},
		flops:    attentionFLOPs(2), // QK', PV
	},
	OpAttentionBackward: {
		Name: "attention-backward", Class: ClassAttention, Dims: "BTHKD", tolerance: 2e-5, check: checkAttention,
		Operands: []Operand{out("dqkv", attentionQKV), scratch("delta", attentionLSE), in("dout", attentionOut), in("qkv", attentionQKV), in("out", attentionOut), in("lse", attentionLSE)},
		flops:    attentionFLOPs(5), // QK', dO V', P'dO, dS'Q, dS K
	},
	OpGELUForward: {
		Name: "gelu-forward", Class: ClassElementwise, Dims: "N", tolerance: 2e-6, InPlace: true,
		Operands: []Operand{out("out", dim(0)), in("x", dim(0))},
		flops:    perElement(20, 1),
	},
	OpGELUBackward: {
		Name: "gelu-backward", Class: ClassElementwise, Dims: "N", tolerance: 4e-6, InPlace: true,
		Operands: []Operand{out("dx", dim(0)), in("dout", dim(0)), in("x", dim(0))},
		flops:    perElement(30, 1),
	},
	OpCrossEntropy: {
		Name: "cross-entropy", Class: ClassElementwise, Dims: "NV", tolerance: 5e-6,
		Operands: []Operand{out("losses", dim(0)), inOut("logits", dim(0, 1)), index("targets", dim(0))},
		flops:    perElement(15, 2),
	},
	OpAdamW: {
		Name: "adamw", Class: ClassOptimizer, Dims: "N", tolerance: 2e-6,
		Operands: []Operand{inOut("param", dim(0)), inOut("m", dim(0)), inOut("v", dim(0)), in("grad", dim(0))},
		flops:    perElement(18, 1),
	},
	OpSumSquares: {
		Name: "sum-squares", Class: ClassOptimizer, Dims: "N", tolerance: 1e-6,
		Operands: []Operand{out("out", func(Call) int { return 1 }), in("x", dim(0))},
		flops:    perElement(2, 1),
	},
	OpAdd: {
		Name: "add", Class: ClassElementwise, Dims: "N", tolerance: 1e-6, InPlace: true,
		Operands: []Operand{out("out", dim(0)), in("a", dim(0)), in("b", dim(0))},
		flops:    perElement(1, 1),
	},
	OpScale: {
		Name: "scale", Class: ClassElementwise, Dims: "N", tolerance: 1e-6,
		Operands: []Operand{inOut("x", dim(0))},
		flops:    perElement(1, 1),
	},
	OpFill: {
		Name: "fill", Class: ClassElementwise, Dims: "N", tolerance: 0,
		Operands: []Operand{out("x", dim(0))},
		flops:    perElement(0, 1),
	},
	OpCopy: {
		Name: "copy", Class: ClassElementwise, Dims: "N", tolerance: 0,
		Operands: []Operand{out("out", dim(0)), in("x", dim(0))},
		flops:    perElement(0, 1),
	},
}
