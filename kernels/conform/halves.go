package conform

import (
	"math"

	"pnode/kernels"
)

// nearest rounds to the nearest number of a type, ties to even. NaN stays NaN.
func nearest(dtype kernels.DType, x float32) float32 {
	switch dtype {
	case kernels.BF16:
		if x != x {
			return x
		}
		bits := math.Float32bits(x)
		low, high := bits&0xffff, bits&^0xffff
		if low > 0x8000 || low == 0x8000 && high&0x10000 != 0 {
			high += 0x10000
		}
		return math.Float32frombits(high)
	case kernels.F16:
		return nearestF16(x)
	default:
		return x
	}
}

// leastExponent is the exponent of the smallest normal number of F16, a mantissa in [1,2) times 2^-14.
const leastExponent = -14

// nearestF16 rounds to the nearest multiple of the last digit, which has 2^-10 of the power of two
// below the number, or of 2^-14. What is finite stays so.
func nearestF16(x float32) float32 {
	if wide := float64(x); !math.IsNaN(wide) && !math.IsInf(wide, 0) && x != 0 {
		digit := math.Ldexp(1, max(math.Ilogb(wide), leastExponent)-10)
		near := math.RoundToEven(wide/digit) * digit
		return float32(math.Copysign(min(math.Abs(near), kernels.MaxF16), wide))
	}
	return x
}

// roundTo rounds values as they will be stored, so that what is made from them fits to them.
//
//go:norace
func roundTo(dtype kernels.DType, x []float64) {
	for i, v := range x {
		x[i] = float64(nearest(dtype, float32(v)))
	}
}

// HalfBits are the bits of a number that a half can hold.
func HalfBits(dtype kernels.DType, x float32) uint16 {
	bits := math.Float32bits(x)
	if dtype == kernels.BF16 {
		return uint16(bits >> 16)
	}
	sign, size := uint16(bits>>16)&0x8000, math.Abs(float64(x))
	switch {
	case x != x:
		return sign | 0x7e00
	case math.IsInf(size, 0):
		return sign | 0x7c00
	case size < math.Ldexp(1, leastExponent):
		return sign | uint16(math.Ldexp(size, 10-leastExponent))
	default:
		exponent := math.Ilogb(size)
		return sign | uint16(exponent-leastExponent+1)<<10 | uint16(math.Ldexp(size, 10-exponent))&0x3ff
	}
}

// fromHalf is the number that the bits of a half stand for.
func fromHalf(dtype kernels.DType, bits uint16) float32 {
	if dtype == kernels.BF16 {
		return math.Float32frombits(uint32(bits) << 16)
	}
	exponent, mantissa, size := int(bits>>10&0x1f), float64(bits&0x3ff), 0.0
	switch exponent {
	case 0x1f:
		size = math.Inf(1)
		if mantissa != 0 {
			size = math.NaN()
		}
	case 0:
		size = math.Ldexp(mantissa, leastExponent-10)
	default:
		size = math.Ldexp(1<<10+mantissa, exponent-1+leastExponent-10)
	}
	if bits&0x8000 != 0 {
		size = -size
	}
	return float32(size)
}

// edges are numbers at which rounding to a half changes its way: the largest ones and what is beyond,
// infinities, NaN, the smallest ones and what is below, normal and not, ties and what is beside them.
var edges = []float64{
	65504, -65504, 65519.996, -65519.996, 65520, 65536, -70000, 1e30, -3.4028235e38, math.Inf(1), math.Inf(-1), math.NaN(),
	0x1p-14, -0x1.ff8p-15, 0x1.ffcp-15, 0x1p-24, -0x1p-24, 0x1p-25, -0x1.000002p-25, 0x1.8p-24, 0x1.7ffffep-24, 1e-30, 0, math.Copysign(0, -1),
	1 + 0x1p-11, 1 + 0x3p-11, -1 - 0x1p-11, 1 + 0x1.00002p-11, 2047.5, 2048.5, 1 + 0x1p-8, 1 + 0x3p-8,
}

// sprinkle puts edges in the place of every third value.
func sprinkle(x []float64) {
	for i := 0; 3*i+2 < len(x); i++ {
		x[3*i+2] = edges[i%len(edges)]
	}
}
