package cpu

import (
	"math"

	"pnode/kernels"
)

// conversion is how numbers of a half become float32 and back, rounded to nearest.
type conversion struct {
	widen  func(out []float32, x []uint16)
	narrow func(out []uint16, x []float32)
}

// conversion gives that of a half. F16 has no instructions here: no plan takes it for a processor
// that does not have to, since it computes in float32 anyway.
func (v *variant) conversion(half kernels.DType) conversion {
	if half == kernels.F16 {
		return conversion{widenF16, narrowF16}
	}
	return conversion{v.widen, v.narrow}
}

// Bits of float32: the largest number of F16, and its smallest normal one, 2^-14.
const (
	maxF16Bits  = 0x477fe000
	leastNormal = 0x38800000
)

// nearestF16 rounds float32 bits to nearest, ties to even, and what is finite to no more than
// kernels.MaxF16. NaN stays a quiet NaN.
func nearestF16(b uint32) uint16 {
	sign, size := uint16(b>>16)&(1<<15), b&^(1<<31)
	switch {
	case size > infinityBits:
		return sign | 0x7e00
	case size == infinityBits:
		return sign | 0x7c00
	case size >= maxF16Bits:
		return sign | 0x7bff
	case size < leastNormal: // the last digit of numbers from 0.5 on is 2^-24, too
		return sign | uint16(math.Float32bits(math.Float32frombits(size)+0.5)-math.Float32bits(0.5))
	default:
		return sign | uint16((size-112<<23+0xfff+size>>13&1)>>13)
	}
}

func narrowF16(out []uint16, x []float32) {
	for i, v := range x {
		out[i] = nearestF16(math.Float32bits(v))
	}
}

// floatOf is the number of F16 bits. Exponents have another origin, by 112.
func floatOf(h uint16) float32 {
	bits := math.Float32bits(math.Float32frombits(uint32(h&^(1<<15))<<13) * 0x1p112)
	if h&0x7c00 == 0x7c00 {
		bits |= infinityBits
	}
	return math.Float32frombits(bits | uint32(h>>15)<<31)
}

func widenF16(out []float32, x []uint16) {
	for i, v := range x {
		out[i] = floatOf(v)
	}
}
