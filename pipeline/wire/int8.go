package wire

import (
	"slices"

	"pnode/kernels/quant"
)

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

// NewInt8Tensor gives a tensor of n elements in Int8, and the part of it that holds them, to be
// filled by a device that packs them: in whole words, of which the tensor may leave bytes out.
func NewInt8Tensor(n int) (tensor, words []byte) {
	b := make([]byte, tensorFront+4*quant.Words(n))
	b[0] = byte(Int8)
	return b[:TensorBytes(Int8, n)], b[tensorFront:]
}

// nearly is how far from the bound an error is that cannot be on its other side for having been
// summed in float32.
const nearly = 0.999

// CheckInt8 tells how AppendTensor writes the elements of these words, whose sums in each group
// steps has (quant.InSteps): in Int8, or with Refused where it does not (AppendRefused). It tells
// neither where that takes the elements.
func CheckInt8(words []byte, steps []float32) Encoded {
	var wrong, all float64
	for i := 0; i < len(steps); i += 2 {
		w, a, ok := quant.OfSteps(words[quant.Bytes(i/2*GroupElements):], steps[i], steps[i+1])
		if !ok {
			return Encoded{}
		}
		wrong, all = wrong+w, all+a
	}
	switch e := relative(wrong, all); {
	case e <= nearly*maxError[Int8]:
		return Encoded{Codec: Int8, RelError: e}
	case nearly*e > maxError[Int8]:
		return Encoded{Refused: e}
	}
	return Encoded{}
}

// Int8Words gives the elements of a tensor of n elements in whole words, if it is in Int8 and
// well-formed.
func Int8Words(tensor []byte, n int) (words []byte, ok bool) {
	if !fronted(tensor, Int8, n) {
		return nil, false
	}
	words = slices.Clip(tensor[tensorFront:])
	return append(words, make([]byte, 4*quant.Words(n)-len(words))...), true
}
