package kernels

import "slices"

// LayerNormForward computes out[N,C] = (x - mean) * rstd * w + b and keeps mean[N]
// and rstd[N] for the backward pass.
func LayerNormForward(out, mean, rstd, x, w, b View, n, c int, eps float32) Call {
	return Call{Op: OpLayerNormForward, Args: [8]View{out, mean, rstd, x, w, b}, Dims: Dims{n, c}, Scalars: [8]float32{eps}}
}

// AddLayerNormForward computes sum[N,C] = a + b and the layer norm of it; sum may be a or b.
func AddLayerNormForward(out, sum, mean, rstd, a, b, w, bias View, n, c int, eps float32) Call {
	return Call{Op: OpAddLayerNormForward, Args: [8]View{out, sum, mean, rstd, a, b, w, bias}, Dims: Dims{n, c}, Scalars: [8]float32{eps}}
}

// LayerNormBackwardInput computes dx[N,C] = residual + the input gradient from
// dout[N,C]. residual [N,C] may be absent or dx itself.
func LayerNormBackwardInput(dx, dout, x, w, mean, rstd, residual View, n, c int) Call {
	return Call{Op: OpLayerNormBackwardInput, Args: [8]View{dx, dout, x, w, mean, rstd, residual}, Dims: Dims{n, c}}
}

// LayerNormBackwardWeight adds to dw[C] and db[C] the gradients from dout[N,C].
func LayerNormBackwardWeight(dw, db, dout, x, mean, rstd View, n, c int) Call {
	return Call{Op: OpLayerNormBackwardWeight, Args: [8]View{dw, db, dout, x, mean, rstd}, Dims: Dims{n, c}}
}

// RMSNormForward computes out[N,C] = x * rstd * w with rstd[N] = 1/sqrt(mean of x^2 + eps)
// (Zhang and Sennrich 2019) and keeps rstd for the backward pass.
func RMSNormForward(out, rstd, x, w View, n, c int, eps float32) Call {
	return Call{Op: OpRMSNormForward, Args: [8]View{out, rstd, x, w}, Dims: Dims{n, c}, Scalars: [8]float32{eps}}
}

// AddRMSNormForward computes sum[N,C] = a + b and the RMS norm of it; sum may be a or b.
func AddRMSNormForward(out, sum, rstd, a, b, w View, n, c int, eps float32) Call {
	return Call{Op: OpAddRMSNormForward, Args: [8]View{out, sum, rstd, a, b, w}, Dims: Dims{n, c}, Scalars: [8]float32{eps}}
}

// RMSNormBackwardInput computes dx[N,C] = residual + the input gradient from dout[N,C].
// residual [N,C] may be absent or dx itself.
func RMSNormBackwardInput(dx, dout, x, w, rstd, residual View, n, c int) Call {
	return Call{Op: OpRMSNormBackwardInput, Args: [8]View{dx, dout, x, w, rstd, residual}, Dims: Dims{n, c}}
}

// RMSNormBackwardWeight adds to dw[C] the gradient from dout[N,C].
func RMSNormBackwardWeight(dw, dout, x, rstd View, n, c int) Call {
	return Call{Op: OpRMSNormBackwardWeight, Args: [8]View{dw, dout, x, rstd}, Dims: Dims{n, c}}
}

// normGaps has, of the operands that NormOperands returns, those that an operation lacks.
var normGaps = map[Op][]int{
	OpLayerNormForward: {1, 5}, OpAddLayerNormForward: {}, OpRMSNormForward: {1, 2, 5, 7}, OpAddRMSNormForward: {2, 7},
	OpLayerNormBackwardInput: {}, OpRMSNormBackwardInput: {4},
	OpLayerNormBackwardWeight: {}, OpRMSNormBackwardWeight: {1, 4},
}

// NormOperands returns the operands of a norm in one order for layer norms and RMS norms, with the zero View
// for those that the operation lacks. A forward pass has out, sum, mean, rstd, a, b, w, bias, where x is
// a; an input gradient dx, dout, x, w, mean, rstd, residual; a weight gradient dw, db, dout, x, mean, rstd.
// It reports whether the call is a norm.
func NormOperands(c Call) (operands [8]View, ok bool) {
	gaps, ok := normGaps[c.Op]
	next := 0
	for i := range operands {
		if !slices.Contains(gaps, i) {
			operands[i] = c.Args[next]
			next++
		}
	}
	return operands, ok
}
