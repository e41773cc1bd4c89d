package kernels

// MatMulInt8 computes out[M,N] = A[M,K]*W' + bias[N] (bias may be absent) with int8 weights W [N,K]: words, MatrixWords(N, K) of them, are
// the bytes of quant.PackPanel in little-endian order, panel by panel. A weight is its byte times its group's scale, rounded to float32. On a
// processor the result has the bits of MatMul with these weights and TransB, so it depends neither on the number of threads nor on how
// many rows there are at a time; variants of a processor differ as they do in MatMul.
func MatMulInt8(out, a, words, bias View, m, n, k int) Call {
	return Call{Op: OpMatMulInt8, Args: [8]View{out, a, words, bias}, Dims: Dims{m, n, k}}
}

// EmbedInt8 computes EmbedForward with a wte [V,C] of int8 weights like those of MatMulInt8.
func EmbedInt8(out, tokens, words, wpe View, b, t, c, v int) Call {
	return Call{Op: OpEmbedInt8, Args: [8]View{out, tokens, words, wpe}, Dims: Dims{b, t, c, v}}
}
