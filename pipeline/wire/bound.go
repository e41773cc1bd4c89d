package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// ErrElement is wrapped by errors about a tensor with an element that is not finite or too large.
var ErrElement = errors.New("wire: element out of bounds")

// What one honest stage's elements stay below. Activations of trained transformers reach some 10^4
// (Sun et al. 2024, "Massive Activations in Large Language Models", table 1). Gradients at a boundary are
// those of a mean over a step's tokens, far below 1. Gradients of parameters are sums over tokens. Below
// these bounds neither the products of two tensors nor the square sums of a layer leave float32.
const (
	activationBound = 0x1p24
	gradientBound   = 0x1p20
	vectorBound     = 0x1p42 // all others
)

// GradientGrowth is by how many bits gradients may grow on their way back, up to their bound: senders farther behind have a limit that is so much lower.
const GradientGrowth = 12

// Bound returns the magnitude that elements of a tensor kind stay below where they come from one stage. Who
// sends what others had a part in multiplies it by their number.
func (k Kind) Bound() float32 {
	switch k {
	case Activation:
		return activationBound
	case Gradient:
		return gradientBound
	default:
		return vectorBound
	}
}

// RoundedUp returns the limit of a receiver for that of a sender: in a codec of 8 bits of mantissa an
// element may be that much larger.
func RoundedUp(limit float32) float32 { return limit * (1 + 0x1p-7) }

// CheckElements returns an error unless the float32 elements, little endian, are finite and below limit
// in magnitude. It reads 10 GB/s or more, which is no slower than a copy.
func CheckElements(elements []byte, limit float32) error {
	i := beyond(elements, limit)
	if i < 0 {
		return nil
	}
	return refused(i, math.Float32frombits(binary.LittleEndian.Uint32(elements[4*i:])), limit)
}

// CheckInt8Elements is CheckElements for the words of n elements in Int8 (Int8Words): it looks at what
// each group's scale lets an element be.
func CheckInt8Elements(words []byte, n int, limit float32) error {
	for first := 0; first < n; first += GroupElements {
		scale := math.Float32frombits(binary.LittleEndian.Uint32(words[quant.Bytes(first):]))
		if most := 127 * scale; !(most >= 0 && most < limit) {
			return refused(first, most, limit)
		}
	}
	return nil
}

func refused(i int, x, limit float32) error {
	if x != x || math.IsInf(float64(x), 0) {
		return fmt.Errorf("%w: element %d is %v", ErrElement, i, x)
	}
	return fmt.Errorf("%w: element %d is %.3g, magnitudes below %.3g are accepted", ErrElement, i, x, limit)
}

// beyond returns the number of the first element that is not finite or not below limit in magnitude, -1
// where there is none. Without their signs the bits of floats are in the order of their magnitudes, and
// above all others when not finite. So what is added takes exactly the refused ones to bit 31 of their
// half of a word, with no carry out of it.
func beyond(b []byte, limit float32) int {
	const magnitude, top = 0x7fffffff_7fffffff, 0x80000000_80000000
	add := uint64(0x80000000 - math.Float32bits(limit))
	add |= add << 32
	rest := b
	for blocks := kernels.Blocks(b); len(blocks) > 0; blocks, rest = blocks[1:], rest[32:] {
		block := &blocks[0]
		x, y, z, w := block[0]&magnitude+add, block[1]&magnitude+add, block[2]&magnitude+add, block[3]&magnitude+add
		if (x|y|z|w)&top != 0 {
			break
		}
	}
	for ; len(rest) >= 4; rest = rest[4:] {
		if binary.LittleEndian.Uint32(rest)&0x7fffffff >= math.Float32bits(limit) {
			return (len(b) - len(rest)) / 4
		}
	}
	return -1
}
