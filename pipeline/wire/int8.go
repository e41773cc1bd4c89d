package wire

import "pnode/kernels/quant"

// GroupElements is how many elements share a scale.
const GroupElements = quant.Group

// appendInt8 appends for each group its scale and its elements over the scale, rounded by
// chance, and gives the relative error.
func appendInt8(dst []byte, xs []float32, noise Noise) ([]byte, float64) {
	start := len(dst)
	dst = append(dst, make([]byte, quant.Bytes(len(xs)))...)
	b := dst[start:]
	var wrong, all float64
	for number := uint64(0); len(xs) > 0; number += GroupElements / 4 {
		n := min(len(xs), GroupElements)
		w, a := quant.Pack(b, xs[:n], uint64(noise), number)
		wrong, all = wrong+w, all+a
		b, xs = b[quant.Bytes(n):], xs[n:]
	}
	return dst, relative(wrong, all)
}
