package kernels

// Op names an operation. The zero value is invalid.
type Op uint8

// The operations. The constructors below document operands and shapes.
const (
	_ Op = iota
	OpMatMul
	OpColumnSum
	OpEmbedForward
	OpEmbedBackward
	OpLayerNormForward
	OpAddLayerNormForward
	OpLayerNormBackwardInput
	OpLayerNormBackwardWeight
	OpRMSNormForward
	OpAddRMSNormForward
	OpRMSNormBackwardInput
	OpRMSNormBackwardWeight
	OpRoPE
	OpAttentionForward
	OpAttentionBackward
	OpAttentionForwardPart
	OpAttentionBackwardPart
	OpAttentionCached
	OpGELUForward
	OpGELUBackward
	OpSwiGLUForward
	OpSwiGLUBackward
	OpDropout
	OpCrossEntropy
	OpAdamW
	OpSumSquares
	OpAdd
	OpScale
	OpCombine
	OpFill
	OpCopy
	OpCast
	OpQuantize
	OpDequantize
	OpMatMulInt8
	OpEmbedInt8
	opCount
)

// Flags refine an op.
type Flags uint8

// Flag bits.
const (
	// TransA, TransB: the operand of a matrix product is stored transposed.
	TransA Flags = 1 << iota
	TransB
	// Accumulate adds to the output instead of overwriting it.
	Accumulate
	// Inverse turns the other way (RoPE).
	Inverse
	// Stochastic rounds to BF16 by chance: see Rounding. No call with it has F16 operands.
	Stochastic
)

// Call is one operation as a plain value: comparable, no allocation to make or pass.
// Args, Dims and Scalars hold the operands in the order in which the constructor
// documents them: outputs first.
type Call struct {
	Op      Op
	Flags   Flags
	Args    [8]View
	Dims    Dims
	Scalars [8]float32
	Random  Random
}

// Dims are the sizes of a call; the table names them.
type Dims [8]int

// Random names one stream of Philox4x32-10 numbers (Salmon et al. 2011, "Parallel Random
// Numbers: As Easy as 1, 2, 3"). Element i of an operand uses word i%4 of the block whose
// counter is i/4 in its low and Stream in its high 64 bits, under Key. Different streams
// have no block in common, and an element's number depends on nothing but its place.
type Random struct{ Key, Stream uint64 }

// MatMul computes out[M,N] = A*B + bias[N] (bias may be absent), A [M,K] (stored
// [K,M] with TransA), B [K,N] (stored [N,K] with TransB). With Accumulate the result
// is added to out. A and B are both F32, both BF16 or both F16, out is F32 or one of the halves,
// theirs if they are of one; the sums are float32.
func MatMul(out, a, b, bias View, m, n, k int, flags Flags) Call {
	return Call{Op: OpMatMul, Flags: flags, Args: [8]View{out, a, b, bias}, Dims: Dims{m, n, k}}
}

// ColumnSum computes out[C] (+)= sum over rows of in[N,C].
func ColumnSum(out, in View, n, c int, flags Flags) Call {
	return Call{Op: OpColumnSum, Flags: flags, Args: [8]View{out, in}, Dims: Dims{n, c}}
}

// EmbedForward computes out[B,T,C] = wte[tokens[B,T]] + wpe[T], with wte [V,C],
// wpe [>=T,C] (may be absent). Later positions: give wpe from their first row on. wte may
// be BF16 or F16.
func EmbedForward(out, tokens, wte, wpe View, b, t, c, v int) Call {
	return Call{Op: OpEmbedForward, Args: [8]View{out, tokens, wte, wpe}, Dims: Dims{b, t, c, v}}
}

// EmbedBackward adds dout[B,T,C] to dwte[V,C] by token and to dwpe[>=T,C] by
// position, rows in ascending order (a fixed order, no atomics).
func EmbedBackward(dwte, dwpe, dout, tokens View, b, t, c, v int) Call {
	return Call{Op: OpEmbedBackward, Args: [8]View{dwte, dwpe, dout, tokens}, Dims: Dims{b, t, c, v}}
}

// GELUForward computes out[n] = GELU(x) with the tanh approximation.
func GELUForward(out, x View, n int) Call {
	return Call{Op: OpGELUForward, Args: [8]View{out, x}, Dims: Dims{n}}
}

// GELUBackward computes dx[n] = dout * GELU'(x); dx may be dout.
func GELUBackward(dx, dout, x View, n int) Call {
	return Call{Op: OpGELUBackward, Args: [8]View{dx, dout, x}, Dims: Dims{n}}
}

// SwiGLUForward computes out[N,F] = silu(gate)*up (Shazeer 2020, "GLU Variants Improve
// Transformer", section 2); a row of gateUp [N,2F] is gate[F], then up[F].
func SwiGLUForward(out, gateUp View, n, f int) Call {
	return Call{Op: OpSwiGLUForward, Args: [8]View{out, gateUp}, Dims: Dims{n, f}}
}

// SwiGLUBackward overwrites dgateUp [N,2F] by the gradient of gateUp; it may be gateUp.
func SwiGLUBackward(dgateUp, dout, gateUp View, n, f int) Call {
	return Call{Op: OpSwiGLUBackward, Args: [8]View{dgateUp, dout, gateUp}, Dims: Dims{n, f}}
}

// Dropout computes out[n] = x/(1-p) for the elements that are kept and 0 for the rest;
// out may be x. Element i is dropped when number first+i of r, a 32-bit word, is below
// p*2^32, so that parts of a tensor are dropped as in the whole. The backward pass is the
// same call on the gradient.
func Dropout(out, x View, n, first int, p float32, r Random) Call {
	return Call{Op: OpDropout, Args: [8]View{out, x}, Dims: Dims{n, first}, Scalars: [8]float32{p}, Random: r}
}

// CrossEntropy computes losses[N] = -log softmax(logits[N,V])[target] and overwrites
// logits by their gradient times scale. Rows with a negative target have loss 0 and
// gradient 0. Rows are independent of each other, so a caller may give them in parts.
func CrossEntropy(losses, logits, targets View, n, v int, scale float32) Call {
	return Call{Op: OpCrossEntropy, Args: [8]View{losses, logits, targets}, Dims: Dims{n, v}, Scalars: [8]float32{scale}}
}

// AdamWScalars are the numbers of one AdamW update. Correction1 = 1-Beta1^t and
// Correction2 = 1-Beta2^t for update t = 1, 2, ...; GradScale multiplies the gradient
// first (clipping).
type AdamWScalars struct {
	LR, Beta1, Beta2, Eps, Decay, Correction1, Correction2, GradScale float32
}

// AdamW updates param[n], m[n], v[n] from grad[n] with decoupled weight decay
// (Loshchilov and Hutter 2019, algorithm 2).
func AdamW(param, m, v, grad View, n int, s AdamWScalars) Call {
	return AdamWRounded(param, m, v, View{}, grad, n, s, Rounding{})
}

// AdamWRounded is AdamW that writes the new param to half[n] too, in BF16 or F16; half may be absent.
func AdamWRounded(param, m, v, half, grad View, n int, s AdamWScalars, r Rounding) Call {
	return r.of(Call{
		Op: OpAdamW, Args: [8]View{param, m, v, half, grad}, Dims: Dims{n},
		Scalars: [8]float32{s.LR, s.Beta1, s.Beta2, s.Eps, s.Decay, s.Correction1, s.Correction2, s.GradScale},
	})
}

// SumSquares computes out[1] = sum of x[n]^2 in a fixed order that depends on n only.
func SumSquares(out, x View, n int) Call {
	return Call{Op: OpSumSquares, Args: [8]View{out, x}, Dims: Dims{n}}
}

// Add computes out[n] = a + b; out may be a or b.
func Add(out, a, b View, n int) Call {
	return Call{Op: OpAdd, Args: [8]View{out, a, b}, Dims: Dims{n}}
}

// Scale computes x[n] *= s.
func Scale(x View, n int, s float32) Call {
	return Call{Op: OpScale, Args: [8]View{x}, Dims: Dims{n}, Scalars: [8]float32{s}}
}

// Combine computes out[n] = as*a + bs*b; out may be a or b.
func Combine(out, a, b View, n int, as, bs float32) Call {
	return Call{Op: OpCombine, Args: [8]View{out, a, b}, Dims: Dims{n}, Scalars: [8]float32{as, bs}}
}

// CombineSquare computes out[N,N] = as*a + bs*b + diagonal times the identity; out may be a or b.
func CombineSquare(out, a, b View, n int, as, bs, diagonal float32) Call {
	return Call{Op: OpCombine, Args: [8]View{out, a, b}, Dims: Dims{n * n, n + 1}, Scalars: [8]float32{as, bs, diagonal}}
}

// Fill sets x[n] to s.
func Fill(x View, n int, s float32) Call {
	return Call{Op: OpFill, Args: [8]View{x}, Dims: Dims{n}, Scalars: [8]float32{s}}
}

// Copy computes out[n] = x.
func Copy(out, x View, n int) Call {
	return Call{Op: OpCopy, Args: [8]View{out, x}, Dims: Dims{n}}
}

// Cast computes out[n] = x between F32 and BF16 or F16, rounded to nearest, ties to even.
func Cast(out, x View, n int) Call { return CastRounded(out, x, n, Rounding{}) }

// CastRounded is Cast that rounds as it is told.
func CastRounded(out, x View, n int, r Rounding) Call {
	return r.of(Call{Op: OpCast, Args: [8]View{out, x}, Dims: Dims{n}})
}

// Quantize writes x[n] as int8 to words, quant.Words(n) of them: the bytes of package quant in
// little-endian order, zeros behind the last. Elements are rounded by the numbers of the noise as
// those from a group on of a longer tensor. steps [2*groups] are the two sums of each group that
// quant.InSteps gives.
func Quantize(words, steps, x View, n, group int, noise uint64) Call {
	return Call{Op: OpQuantize, Args: [8]View{words, steps, x}, Dims: Dims{n, group}, Random: Random{Key: noise}}
}

// Dequantize computes out[n] from the words of Quantize, or of another quant.Pack.
func Dequantize(out, words View, n int) Call {
	return Call{Op: OpDequantize, Args: [8]View{out, words}, Dims: Dims{n}}
}

// Rounding says how a call rounds float32 to BF16. The zero value rounds to nearest, ties to even,
// and is the only one for F16.
//
// Stochastic rounding takes element i to one of its two neighbours by chance, the nearer one the
// likelier, so that the mean is right (Gupta et al. 2015, "Deep Learning with Limited Numerical
// Precision", section 3): the upper 16 bits of word First+i of Random are added to the bits of
// the float, and the lower 16 of the sum are dropped. What BF16 can hold stays as it is, NaN stays
// NaN. The result is a function of the float and its number alone, on every backend.
type Rounding struct {
	Stochastic bool
	First      int
	Random     Random
}

// of is a call, whose first dimension is the number of elements, that rounds so.
func (r Rounding) of(c Call) Call {
	if r.Stochastic {
		c.Flags |= Stochastic
		c.Dims[1], c.Random = r.First, r.Random
	}
	return c
}
