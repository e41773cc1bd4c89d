package kernels

import (
	"fmt"

	"pnode/kernels/quant"
)

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

// twice is a count of two times another.
func twice(count func(Call) int) func(Call) int {
	return func(c Call) int { return 2 * count(c) }
}

// in, out and inOut make operands of numbers.
var in, out, inOut = ofRole(In), ofRole(Out), ofRole(InOut)

func ofRole(r Role) func(name string, count func(Call) int) Operand {
	return func(name string, count func(Call) int) Operand {
		return Operand{Name: name, Role: r, DType: F32, count: count}
	}
}

func index(name string, count func(Call) int) Operand {
	return Operand{Name: name, Role: In, DType: I32, count: count}
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

// yields marks an input that an output may replace.
func yields(o Operand) Operand {
	o.Yields = true
	return o
}

// halvable operands may be stored as a half.
func halvable(o Operand) Operand {
	o.Half = true
	return o
}

// rounded operands are sums of products of which a factor may be rounded.
func rounded(o Operand) Operand {
	o.Rounded = true
	return o
}

// alike operands are halvable, all of a call together.
func alike(o Operand) Operand {
	o.Alike = true
	return halvable(o)
}

// perElement makes a FLOP count of k operations for each element of a [D0,D1,...] array
// of the first n dimensions.
func perElement(k int64, n int) func(Dims) int64 {
	return func(d Dims) int64 {
		total := k
		for _, x := range d[:n] {
			total *= int64(x)
		}
		return total
	}
}

// Tolerances are for float32: n additions in blocks lose about sqrt(n) rounding errors of
// 6e-8 relative to the sum of magnitudes.

var matMulTable = map[Op]OpInfo{
	OpMatMul: {
		Name: "matmul", Class: ClassMatMul, Dims: "MNK", Flags: TransA | TransB | Accumulate, tolerance: 4e-6,
		Operands: []Operand{halvable(out("out", dim(0, 1))), alike(in("a", dim(0, 2))), alike(in("b", dim(1, 2))), optional(in("bias", dim(1)))},
		flops:    perElement(2, 3),
	},
	OpColumnSum: {
		Name: "column-sum", Class: ClassElementwise, Dims: "NC", Flags: Accumulate, tolerance: 4e-6,
		Operands: []Operand{out("out", dim(1)), in("in", dim(0, 1))},
		flops:    perElement(1, 2),
	},
}

var embedTable = map[Op]OpInfo{
	OpEmbedForward: {
		Name: "embed-forward", Class: ClassElementwise, Dims: "BTCV", tolerance: 1e-6,
		Operands: []Operand{out("out", dim(0, 1, 2)), index("tokens", dim(0, 1)), halvable(sparse(in("wte", dim(3, 2)), dim(0, 1, 2))), optional(longer(in("wpe", dim(1, 2))))},
		flops:    perElement(1, 3),
	},
	OpEmbedBackward: {
		Name: "embed-backward", Class: ClassElementwise, Dims: "BTCV", tolerance: 1e-5,
		Operands: []Operand{sparse(inOut("dwte", dim(3, 2)), dim(0, 1, 2)), optional(longer(inOut("dwpe", dim(1, 2)))), in("dout", dim(0, 1, 2)), index("tokens", dim(0, 1))},
		flops:    perElement(2, 3),
	},
}

var elementwiseTable = map[Op]OpInfo{
	OpGELUForward: {
		Name: "gelu-forward", Class: ClassElementwise, Dims: "N", tolerance: 2e-6,
		Operands: []Operand{out("out", dim(0)), yields(in("x", dim(0)))},
		flops:    perElement(20, 1),
	},
	OpGELUBackward: {
		Name: "gelu-backward", Class: ClassElementwise, Dims: "N", tolerance: 4e-6,
		Operands: []Operand{out("dx", dim(0)), yields(in("dout", dim(0))), yields(in("x", dim(0)))},
		flops:    perElement(30, 1),
	},
	OpSwiGLUForward: {
		Name: "swiglu-forward", Class: ClassElementwise, Dims: "NF", tolerance: 2e-6,
		Operands: []Operand{out("out", dim(0, 1)), in("gateUp", twice(dim(0, 1)))},
		flops:    perElement(20, 2),
	},
	OpSwiGLUBackward: {
		Name: "swiglu-backward", Class: ClassElementwise, Dims: "NF", tolerance: 4e-6,
		Operands: []Operand{out("dgateUp", twice(dim(0, 1))), in("dout", dim(0, 1)), yields(in("gateUp", twice(dim(0, 1))))},
		flops:    perElement(30, 2),
	},
	OpDropout: {
		Name: "dropout", Class: ClassElementwise, Dims: "Np", tolerance: 1e-6, check: checkDropout,
		Operands: []Operand{out("out", dim(0)), yields(in("x", dim(0)))},
		flops:    perElement(20, 1),
	},
	OpCrossEntropy: {
		Name: "cross-entropy", Class: ClassElementwise, Dims: "NV", tolerance: 5e-6,
		Operands: []Operand{out("losses", dim(0)), inOut("logits", dim(0, 1)), index("targets", dim(0))},
		flops:    perElement(15, 2),
	},
	OpAdd: {
		Name: "add", Class: ClassElementwise, Dims: "N", tolerance: 1e-6,
		Operands: []Operand{out("out", dim(0)), yields(in("a", dim(0))), yields(in("b", dim(0)))},
		flops:    perElement(1, 1),
	},
	OpScale: {
		Name: "scale", Class: ClassElementwise, Dims: "N", tolerance: 1e-6,
		Operands: []Operand{inOut("x", dim(0))},
		flops:    perElement(1, 1),
	},
	OpCombine: {
		Name: "combine", Class: ClassElementwise, Dims: "Np", tolerance: 1e-6,
		Operands: []Operand{out("out", dim(0)), yields(in("a", dim(0))), yields(in("b", dim(0)))},
		flops:    perElement(3, 1),
	},
}

func checkDropout(c Call) error {
	if p := c.Scalars[0]; !(p >= 0 && p < 1) {
		return fmt.Errorf("p is %v, want 0 <= p < 1", p)
	}
	return nil
}

var optimizerTable = map[Op]OpInfo{
	OpAdamW: {
		Name: "adamw", Class: ClassOptimizer, Dims: "Np", Flags: Stochastic, tolerance: 2e-6,
		Operands: []Operand{inOut("param", dim(0)), inOut("m", dim(0)), inOut("v", dim(0)), optional(halvable(Operand{Name: "half", Role: Out, DType: BF16, count: dim(0)})), in("grad", dim(0))},
		flops:    perElement(18, 1),
	},
	OpSumSquares: {
		Name: "sum-squares", Class: ClassOptimizer, Dims: "N", tolerance: 1e-6,
		Operands: []Operand{out("out", func(Call) int { return 1 }), in("x", dim(0))},
		flops:    perElement(2, 1),
	},
}

var storageTable = map[Op]OpInfo{
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
	OpCast: {
		Name: "cast", Class: ClassElementwise, Dims: "Np", Flags: Stochastic, tolerance: 0,
		Operands: []Operand{halvable(out("out", dim(0))), halvable(in("x", dim(0)))},
		flops:    perElement(0, 1),
	},
}

func quantizedWords(c Call) int { return quant.Words(c.Dims[0]) }

var quantizeTable = map[Op]OpInfo{
	OpQuantize: {
		Name: "quantize", Class: ClassElementwise, Dims: "Np", tolerance: 4e-5,
		Operands: []Operand{{Name: "words", Role: Out, DType: I32, count: quantizedWords}, out("steps", func(c Call) int { return 2 * quant.Groups(c.Dims[0]) }), in("x", dim(0))},
		flops:    perElement(10, 1),
	},
	OpDequantize: {
		Name: "dequantize", Class: ClassElementwise, Dims: "N", tolerance: 0,
		Operands: []Operand{out("out", dim(0)), index("words", quantizedWords)},
		flops:    perElement(1, 1),
	},
}
