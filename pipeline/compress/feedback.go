package compress

import (
	"fmt"

	"pnode/kernels"
	"pnode/pipeline/wire"
)

// Append appends the message of a tensor's gradient: of what earlier ones lacked, times c.Decay(), and the gradient. It
// leaves in missed what this message lacks. An element that is not finite and below limit in magnitude is an error
// that wraps wire.ErrElement; then missed is undefined.
func (c Codec) Append(dst []byte, missed, grad []float32, limit float32, noise wire.Noise) ([]byte, error) {
	decay := c.Decay()
	for i, g := range grad[:len(missed)] {
		missed[i] = float32(decay*missed[i]) + g
	}
	if err := wire.CheckElements(kernels.Float32Bytes(missed), limit); err != nil {
		return dst, err
	}
	start := len(dst)
	dst = append(dst, make([]byte, c.Bytes(len(missed)))...)
	b := dst[start:]
	switch c {
	case F32:
		copy(b, kernels.Float32Bytes(missed))
		clear(missed)
	case BF16:
		takeBF16(b, missed)
	case Int8:
		takeInt8(b, missed, noise)
	case Int4:
		takeInt4(b, missed)
	case TopK:
		takeTopK(b, missed)
	}
	return dst, nil
}

// Add adds weight times a message's elements to sum, or to a part of it that begins with a block. A message of another size, or
// with an element that is not finite and below limit in magnitude, is an error that wraps wire.ErrLength, wire.ErrValue
// or wire.ErrElement; then sum is undefined. Who receives takes wire.RoundedUp of the sender's limit.
func (c Codec) Add(sum []float32, weight float32, b []byte, limit float32) error {
	if !c.Valid() {
		return fmt.Errorf("%w: %v", wire.ErrValue, c)
	}
	if want := c.Bytes(len(sum)); len(b) != want {
		return fmt.Errorf("%w: gradient of %d bytes, want %d for %d elements in %v", wire.ErrLength, len(b), want, len(sum), c)
	}
	switch c {
	case BF16:
		return addBF16(sum, weight, b, limit)
	case Int8:
		return addInt8(sum, weight, b, limit)
	case Int4:
		return addInt4(sum, weight, b, limit)
	case TopK:
		return addTopK(sum, weight, b, limit)
	}
	return addF32(sum, weight, b, limit)
}
