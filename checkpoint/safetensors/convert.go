package safetensors

import (
	"encoding/binary"
	"math"
)

// decode fills dst from little-endian F16 or BF16, whose every value is a float32. F32
// needs no conversion: the host's memory is the stored form (kernels.Float32Bytes).
func (d DType) decode(dst []float32, src []byte) {
	switch d {
	case F16:
		for i := range dst {
			dst[i] = fromF16(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(src[2*i:])) << 16)
		}
	}
}

// encode is the inverse of decode; it rounds to nearest, ties to even.
func (d DType) encode(dst []byte, src []float32) {
	switch d {
	case F16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], toF16(v))
		}
	case BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], toBF16(v))
		}
	}
}

// IEEE 754: float32 is 1+8+23 bits, float16 1+5+10, bfloat16 the upper half of float32.
const (
	mantissa32 = 1<<23 - 1
	infinity32 = 0xff << 23
	infinity16 = 0x1f << 10
	quietBit16 = 1 << 9
	quietBitBF = 1 << 6
)

func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exponent, mantissa := uint32(h>>10&0x1f), uint32(h&0x3ff)
	switch exponent {
	case 0: // zero or subnormal: mantissa * 2^-24, exact in float32
		v := math.Float32bits(float32(mantissa) / (1 << 24))
		return math.Float32frombits(sign | v)
	case 0x1f: // infinity or NaN
		return math.Float32frombits(sign | infinity32 | mantissa<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | mantissa<<13)
}

func toF16(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	abs := bits &^ (1 << 31)
	switch {
	case abs > infinity32: // keep the payload's front, and NaN a NaN
		payload := uint16(abs & mantissa32 >> 13)
		if payload == 0 {
			payload = quietBit16
		}
		return sign | infinity16 | payload
	case abs >= (127+16)<<23: // 2^16 and more
		return sign | infinity16
	case abs < (127-14)<<23: // below the least normal: a multiple of 2^-24
		scaled := math.Float32frombits(abs) * (1 << 24) // exact, at most 1024
		return sign | uint16(math.RoundToEven(float64(scaled)))
	}
	rebased := abs - (127-15)<<23
	return sign | uint16(roundShift(rebased, 13)) // a carry moves into the exponent, as it must
}

func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if bits&^(1<<31) > infinity32 {
		if bits>>16&0x7f == 0 {
			return uint16(bits>>16) | quietBitBF
		}
		return uint16(bits >> 16)
	}
	return uint16(roundShift(bits, 16))
}

// roundShift is bits / 2^shift, to nearest, ties to even.
func roundShift(bits uint32, shift int) uint32 {
	half := uint32(1)<<(shift-1) - 1
	return (bits + half + bits>>shift&1) >> shift
}
