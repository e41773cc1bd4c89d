package wire

import (
	"encoding/binary"
	"math"

	"pnode/planner/cost"
)

// GroupElements is how many elements share a scale.
const GroupElements = cost.Int8Group

// smallestScaled is the least largest element of a group that is not written as zeros: 127
// over it must be finite.
const smallestScaled = 0x1p-100

// appendInt8 appends for each group its scale and its elements over the scale, rounded by
// chance, and gives the relative error.
func appendInt8(dst []byte, xs []float32, noise Noise) ([]byte, float64) {
	start := len(dst)
	dst = append(dst, make([]byte, TensorBytes(Int8, len(xs))-tensorFront)...)
	b := dst[start:]
	var wrong, all float64
	for number := uint64(0); len(xs) > 0; number += GroupElements / 4 {
		n := min(len(xs), GroupElements)
		scale, inverse := scaleOf(xs[:n])
		binary.LittleEndian.PutUint32(b, math.Float32bits(scale))
		var w, a float64
		if inverse == 0 {
			w, a = dropped(xs[:n])
		} else {
			w, a = roundInt8(b[4:4+n], xs[:n], scale, inverse, noise, number)
		}
		wrong, all = wrong+w, all+a
		b, xs = b[4+n:], xs[n:]
	}
	return dst, relative(wrong, all)
}

// scaleOf gives a group's scale, and what its elements are multiplied with: 0 where all of
// them are written as zeros, whose scale is NaN if one is not finite.
func scaleOf(xs []float32) (scale, inverse float32) {
	largest := uint32(0) // without the sign, bits are in the order of the numbers
	for _, x := range xs {
		largest = max(largest, math.Float32bits(x)&0x7fffffff)
	}
	most := math.Float32frombits(largest)
	switch {
	case largest >= 0x7f800000:
		return float32(math.NaN()), 0
	case most < smallestScaled:
		return 0, 0
	}
	return most / 127, 127 / most
}

// dropped is the error of a group that is written as zeros: NaN if it is not finite.
func dropped(xs []float32) (wrong, all float64) {
	for _, x := range xs {
		all += float64(float64(x) * float64(x))
	}
	return all - 0*all, all
}

// roundInt8 writes a group and gives the sums of squares of the errors and of xs. An element
// is taken in units of 2^-16 of a step; 16 even bits are added and the fraction dropped.
// Each number of the noise serves four elements.
func roundInt8(b []byte, xs []float32, scale, inverse float32, noise Noise, number uint64) (wrong, all float64) {
	b = b[:len(xs)]
	var bits uint64
	for i, x := range xs {
		if i%4 == 0 {
			bits = noise.at(number + uint64(i/4))
		}
		fixed := int32(x * inverse * 65536)
		q := min(127, (fixed+int32(bits&0xffff))>>16)
		bits >>= 16
		b[i] = byte(int8(q))
		d, v := float64(x)-float64(float32(float32(q)*scale)), float64(x)
		wrong += float64(d * d)
		all += float64(v * v)
	}
	return wrong, all
}

// decodeInt8 fills dst from the TensorBytes behind the front.
func decodeInt8(dst []float32, b []byte) {
	for len(dst) > 0 {
		n := min(len(dst), GroupElements)
		scale := math.Float32frombits(binary.LittleEndian.Uint32(b))
		group, out := b[4:4+n], dst[:n]
		for i, q := range group {
			out[i] = float32(int8(q)) * scale
		}
		b, dst = b[4+n:], dst[n:]
	}
}
