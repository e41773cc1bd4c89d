package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// AppendF32 appends the elements of a tensor as little-endian float32, one behind the other.
func AppendF32(dst []byte, xs []float32) []byte {
	start := len(dst)
	dst = append(dst, make([]byte, 4*len(xs))...)
	b := dst[start:]
	for i, x := range xs {
		binary.LittleEndian.PutUint32(b[4*i:4*i+4], math.Float32bits(x))
	}
	return dst
}

// DecodeF32 fills dst from exactly 4*len(dst) bytes. NaN payloads survive.
func DecodeF32(dst []float32, b []byte) error {
	if len(b) != 4*len(dst) {
		return fmt.Errorf("%w: tensor of %d bytes, want %d for %d float32", ErrLength, len(b), 4*len(dst), len(dst))
	}
	for i := range dst {
		dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i : 4*i+4]))
	}
	return nil
}
