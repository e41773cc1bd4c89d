package kernels

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
