package wire

import (
	"encoding/binary"
	"math"
)

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
		h := halfOf(math.Float32bits(x))
		binary.LittleEndian.PutUint16(b[2*i:], uint16(h>>16))
		d, v := float64(x)-float64(math.Float32frombits(h)), float64(x)
		wrong += float64(d * d) // the conversion keeps it from being fused on some machines
		all += float64(v * v)
	}
	return wrong, all
}

// halfOf rounds to a float32 whose lower 16 bits are 0. NaN stays NaN.
func halfOf(bits uint32) uint32 {
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
