package quant

import (
	"encoding/binary"
	"math"
)

// Group is how many elements share a scale.
const Group = 128

// ScaleBytes is the size of a group's scale, a float32 in front of its elements.
const ScaleBytes = 4

// leastScaled is the least largest element of a group that is not written as zeros: 127 over it
// must be finite.
const leastScaled = 0x1p-100

// Bytes is the size of n elements.
func Bytes(n int) int { return n + ScaleBytes*Groups(n) }

// Words is their size in words of four bytes, the last one filled up.
func Words(n int) int { return (Bytes(n) + 3) / 4 }

// Groups is how many groups they are in.
func Groups(n int) int { return (n + Group - 1) / Group }

// Number is the number i of a noise, 64 even bits: the output function of SplitMix64 on the state
// that i steps lead to (Steele, Lea, Flood 2014, "Fast Splittable Pseudorandom Number Generators").
func Number(noise, i uint64) uint64 {
	z := noise + (i+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Pack writes a group of at most Group elements to as many bytes behind the scale's, with the
// numbers of the noise from the given one on, one for four elements. It gives the sums of squares
// of the errors and of xs; the first is NaN if not all of xs is finite.
func Pack(b []byte, xs []float32, noise, number uint64) (wrong, all float64) {
	scale, inverse := scaleOf(xs)
	binary.LittleEndian.PutUint32(b, math.Float32bits(scale))
	if b = b[ScaleBytes:]; inverse == 0 {
		clear(b[:len(xs)])
		for _, x := range xs {
			all += float64(float64(x) * float64(x))
		}
		return all - 0*all, all // NaN if it is not finite
	}
	return round(b[:len(xs)], xs, scale, inverse, noise, number)
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
	case most < leastScaled:
		return 0, 0
	}
	return most / 127, 127 / most
}

// round writes a group's elements. Each is taken in units of 2^-16 of a step; 16 even bits are
// added and the fraction dropped.
func round(b []byte, xs []float32, scale, inverse float32, noise, number uint64) (wrong, all float64) {
	var bits uint64
	for i, x := range xs {
		if i%4 == 0 {
			bits = Number(noise, number+uint64(i/4))
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

// Unpack fills dst, of any length, from its Bytes.
func Unpack(dst []float32, b []byte) {
	for len(dst) > 0 {
		n := min(len(dst), Group)
		scale := math.Float32frombits(binary.LittleEndian.Uint32(b))
		group, out := b[ScaleBytes:ScaleBytes+n], dst[:n]
		for i, q := range group {
			out[i] = float32(int8(q)) * scale
		}
		b, dst = b[ScaleBytes+n:], dst[n:]
	}
}
