package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// AppendF32 appends the elements of a tensor as little-endian float32, one behind the other.
func AppendF32(dst []byte, xs []float32) []byte {
	return append(dst, kernels.Float32Bytes(xs)...)
}

// DecodeF32 fills dst from exactly 4*len(dst) bytes. NaN payloads survive.
func DecodeF32(dst []float32, b []byte) error {
	if len(b) != 4*len(dst) {
		return fmt.Errorf("%w: tensor of %d bytes, want %d for %d float32", ErrLength, len(b), 4*len(dst), len(dst))
	}
	copy(kernels.Float32Bytes(dst), b)
	return nil
}

// appendBF16 appends the upper halves of xs and gives the relative error.
func appendBF16(dst []byte, xs []float32) ([]byte, float64) {
	start := len(dst)
	dst = append(dst, make([]byte, 2*len(xs))...)
	b := dst[start:]
	var wrong, all float64
	for len(xs) > 0 {
		n := min(len(xs), GroupElements)
		w, a := roundBF16(b[:2*n], xs[:n])
		wrong, all = wrong+w, all+a
		b, xs = b[2*n:], xs[n:]
	}
	return dst, relative(wrong, all)
}

// roundBF16 rounds a group and gives the sums of squares of the errors and of xs.
func roundBF16(b []byte, xs []float32) (wrong, all float64) {
	b = b[:2*len(xs)]
	for i, x := range xs {
		h := NearestBF16(math.Float32bits(x))
		binary.LittleEndian.PutUint16(b[2*i:], uint16(h>>16))
		d, v := float64(x)-float64(math.Float32frombits(h)), float64(x)
		wrong += float64(d * d) // the conversion keeps it from being fused on some machines
		all += float64(v * v)
	}
	return wrong, all
}

// NearestBF16 rounds the bits of a float32 to one whose lower 16 are 0, which bfloat16 holds: the nearest, ties to even. NaN stays NaN.
func NearestBF16(bits uint32) uint32 {
	if bits&0x7fffffff > 0x7f800000 {
		return (bits | 0x00400000) &^ 0xffff
	}
	return (bits + 0x7fff + bits>>16&1) &^ 0xffff
}

// decodeBF16 fills dst from 2*len(dst) bytes.
func decodeBF16(dst []float32, b []byte) {
	b = b[:2*len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
	}
}

// GroupElements is how many elements share a scale.
const GroupElements = quant.Group

// appendInt8 appends for each group of a token its scale and its elements over the scale, rounded by
// chance, and gives the relative error.
func appendInt8(dst []byte, xs []float32, token int, noise Noise) ([]byte, float64) {
	start := len(dst)
	dst = append(dst, make([]byte, TensorBytes(Int8, len(xs), token)-tensorFront)...)
	b := dst[start:]
	var wrong, all float64
	number := uint64(0)
	for row := range slices.Chunk(xs, token) {
		for group := range slices.Chunk(row, GroupElements) {
			w, a := quant.Pack(b, group, uint64(noise), number)
			wrong, all = wrong+w, all+a
			b = b[quant.Bytes(len(group)):]
			number += uint64(len(group)+3) / 4
		}
	}
	return dst, relative(wrong, all)
}

// decodeInt8 fills dst from the groups of appendInt8.
func decodeInt8(dst []float32, token int, b []byte) {
	for row := range slices.Chunk(dst, token) {
		n := quant.Bytes(len(row))
		quant.Unpack(row, b[:n])
		b = b[n:]
	}
}

// NewInt8Tensor returns a tensor of n elements in Int8, whose tokens are in whole groups, and the part of it that holds them, to be
// filled by a device that packs them: in whole words, of which the tensor may leave bytes out.
func NewInt8Tensor(n int) (tensor, words []byte) {
	b := make([]byte, tensorFront+4*quant.Words(n))
	b[0] = byte(Int8)
	return b[:TensorBytes(Int8, n, n)], b[tensorFront:]
}

// nearly bounds the error of sums in float32: an error farther from maxError is on the same side of it
// in float64.
const nearly = 0.999

// CheckInt8 returns how AppendTensor writes the elements of these words, whose sums in each group
// steps has (quant.InSteps): in Int8, or with Refused where it does not (AppendRefused). It returns
// neither where only the elements decide.
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

// Int8Words returns the elements of a tensor of n elements, whose tokens are in whole groups, in whole words, if it is in Int8 and
// well-formed.
func Int8Words(tensor []byte, n int) (words []byte, ok bool) {
	if !fronted(tensor, Int8, n) {
		return nil, false
	}
	words = slices.Clip(tensor[tensorFront:])
	return append(words, make([]byte, 4*quant.Words(n)-len(words))...), true
}
