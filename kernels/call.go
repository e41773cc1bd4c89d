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
	OpLayerNormBackwardInput
	OpLayerNormBackwardWeight
	OpAttentionForward
	OpAttentionBackward
	OpGELUForward
	OpGELUBackward
	OpCrossEntropy
	OpAdamW
	OpSumSquares
	OpAdd
	OpScale
	OpFill
	OpCopy
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
)

// Call is one operation as a plain value: comparable, no allocation to make or pass.
// Args, Dims and Scalars hold the operands in the order in which the constructor
// documents them: outputs first.
type Call struct {
	Op      Op
	Flags   Flags
	Args    [8]View
	Dims    [6]int
	Scalars [8]float32
}

// MatMul computes out[M,N] = A*B + bias[N] (bias may be absent), A [M,K] (stored
// [K,M] with TransA), B [K,N] (stored [N,K] with TransB). With Accumulate the result
// is added to out.
func MatMul(out, a, b, bias View, m, n, k int, flags Flags) Call {
	return Call{Op: OpMatMul, Flags: flags, Args: [8]View{out, a, b, bias}, Dims: [6]int{m, n, k}}
}

// ColumnSum computes out[C] (+)= sum over rows of in[N,C].
func ColumnSum(out, in View, n, c int, flags Flags) Call {
	return Call{Op: OpColumnSum, Flags: flags, Args: [8]View{out, in}, Dims: [6]int{n, c}}
}

// EmbedForward computes out[B,T,C] = wte[tokens[B,T]] + wpe[T], with wte [V,C],
// wpe [>=T,C] (may be absent).
func EmbedForward(out, tokens, wte, wpe View, b, t, c, v int) Call {
	return Call{Op: OpEmbedForward, Args: [8]View{out, tokens, wte, wpe}, Dims: [6]int{b, t, c, v}}
}

// EmbedBackward adds dout[B,T,C] to dwte[V,C] by token and to dwpe[>=T,C] by
// position, rows in ascending order (a fixed order, no atomics).
func EmbedBackward(dwte, dwpe, dout, tokens View, b, t, c, v int) Call {
	return Call{Op: OpEmbedBackward, Args: [8]View{dwte, dwpe, dout, tokens}, Dims: [6]int{b, t, c, v}}
}

// LayerNormForward computes out[N,C] = (x - mean) * rstd * w + b and keeps mean[N]
// and rstd[N] for the backward pass.
func LayerNormForward(out, mean, rstd, x, w, b View, n, c int, eps float32) Call {
	return Call{Op: OpLayerNormForward, Args: [8]View{out, mean, rstd, x, w, b}, Dims: [6]int{n, c}, Scalars: [8]float32{eps}}
}

// LayerNormBackwardInput computes dx[N,C] (+)= the input gradient from dout[N,C].
func LayerNormBackwardInput(dx, dout, x, w, mean, rstd View, n, c int, flags Flags) Call {
	return Call{Op: OpLayerNormBackwardInput, Flags: flags, Args: [8]View{dx, dout, x, w, mean, rstd}, Dims: [6]int{n, c}}
}

// LayerNormBackwardWeight adds to dw[C] and db[C] the gradients from dout[N,C].
func LayerNormBackwardWeight(dw, db, dout, x, mean, rstd View, n, c int) Call {
	return Call{Op: OpLayerNormBackwardWeight, Args: [8]View{dw, db, dout, x, mean, rstd}, Dims: [6]int{n, c}}
}

// AttentionShape are the sizes of a self-attention: B sequences of T positions, H
// query heads that share K key-value heads (H a multiple of K), D channels a head.
type AttentionShape struct{ B, T, H, K, D int }

func (s AttentionShape) dims() [6]int { return [6]int{s.B, s.T, s.H, s.K, s.D} }

// AttentionForward computes causal softmax(QK'/sqrt(D))V. qkv is [B,T,(H+2K)*D] with
// all query heads first, then keys, then values; out is [B,T,H*D]; lse [B,H,T] is the
// log of the sum of exponentials, kept for the backward pass.
func AttentionForward(out, lse, qkv View, s AttentionShape) Call {
	return Call{Op: OpAttentionForward, Args: [8]View{out, lse, qkv}, Dims: s.dims()}
}

// AttentionBackward overwrites dqkv [B,T,(H+2K)*D]; delta [B,H,T] is scratch.
func AttentionBackward(dqkv, delta, dout, qkv, out, lse View, s AttentionShape) Call {
	return Call{Op: OpAttentionBackward, Args: [8]View{dqkv, delta, dout, qkv, out, lse}, Dims: s.dims()}
}

// GELUForward computes out[n] = GELU(x) with the tanh approximation.
func GELUForward(out, x View, n int) Call {
	return Call{Op: OpGELUForward, Args: [8]View{out, x}, Dims: [6]int{n}}
}

// GELUBackward computes dx[n] = dout * GELU'(x); dx may be dout.
func GELUBackward(dx, dout, x View, n int) Call {
	return Call{Op: OpGELUBackward, Args: [8]View{dx, dout, x}, Dims: [6]int{n}}
}

// CrossEntropy computes losses[N] = -log softmax(logits[N,V])[target] and overwrites
// logits by their gradient times scale. Rows with a negative target have loss 0 and
// gradient 0.
func CrossEntropy(losses, logits, targets View, n, v int, scale float32) Call {
	return Call{Op: OpCrossEntropy, Args: [8]View{losses, logits, targets}, Dims: [6]int{n, v}, Scalars: [8]float32{scale}}
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
	return Call{
		Op: OpAdamW, Args: [8]View{param, m, v, grad}, Dims: [6]int{n},
		Scalars: [8]float32{s.LR, s.Beta1, s.Beta2, s.Eps, s.Decay, s.Correction1, s.Correction2, s.GradScale},
	}
}

// SumSquares computes out[1] = sum of x[n]^2 in a fixed order that depends on n only.
func SumSquares(out, x View, n int) Call {
	return Call{Op: OpSumSquares, Args: [8]View{out, x}, Dims: [6]int{n}}
}

// Add computes out[n] = a + b; out may be a or b.
func Add(out, a, b View, n int) Call {
	return Call{Op: OpAdd, Args: [8]View{out, a, b}, Dims: [6]int{n}}
}

// Scale computes x[n] *= s.
func Scale(x View, n int, s float32) Call {
	return Call{Op: OpScale, Args: [8]View{x}, Dims: [6]int{n}, Scalars: [8]float32{s}}
}

// Fill sets x[n] to s.
func Fill(x View, n int, s float32) Call {
	return Call{Op: OpFill, Args: [8]View{x}, Dims: [6]int{n}, Scalars: [8]float32{s}}
}

// Copy computes out[n] = x.
func Copy(out, x View, n int) Call {
	return Call{Op: OpCopy, Args: [8]View{out, x}, Dims: [6]int{n}}
}
