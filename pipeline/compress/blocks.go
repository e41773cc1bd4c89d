package compress

import (
	"encoding/binary"
	"fmt"
	"math"

	"pnode/kernels/quant"
	"pnode/pipeline/wire"
)

// Each take writes a tensor and subtracts from it what it wrote; each add has a message of the right size.

func addF32(sum []float32, weight float32, b []byte, limit float32) error {
	if err := wire.CheckElements(b, limit); err != nil {
		return err
	}
	for i := range sum {
		sum[i] += float32(weight * math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:])))
	}
	return nil
}

func takeBF16(b []byte, xs []float32) {
	b = b[:2*len(xs)]
	for i, x := range xs {
		h := wire.NearestBF16(math.Float32bits(x))
		binary.LittleEndian.PutUint16(b[2*i:], uint16(h>>16))
		xs[i] = x - math.Float32frombits(h)
	}
}

func addBF16(sum []float32, weight float32, b []byte, limit float32) error {
	b = b[:2*len(sum)]
	for i := range sum {
		x := math.Float32frombits(uint32(binary.LittleEndian.Uint16(b[2*i:])) << 16)
		if !within(x, limit) {
			return refused(i, x, limit)
		}
		sum[i] += float32(weight * x)
	}
	return nil
}

func takeInt8(b []byte, xs []float32, noise wire.Noise) {
	var read [quant.Group]float32
	for number := uint64(0); len(xs) > 0; number += quant.Group / 4 {
		n := min(len(xs), quant.Group)
		quant.Pack(b, xs[:n], uint64(noise), number)
		quant.Unpack(read[:n], b)
		for i, x := range read[:n] {
			xs[i] -= x
		}
		b, xs = b[quant.Bytes(n):], xs[n:]
	}
}

func addInt8(sum []float32, weight float32, b []byte, limit float32) error {
	if err := wire.CheckInt8Elements(b, len(sum), limit); err != nil {
		return err
	}
	var read [quant.Group]float32
	for len(sum) > 0 {
		n := min(len(sum), quant.Group)
		quant.Unpack(read[:n], b)
		for i, x := range read[:n] {
			sum[i] += float32(weight * x)
		}
		b, sum = b[quant.Bytes(n):], sum[n:]
	}
	return nil
}

// A block of Int4: its scale, then two elements a byte, the first one in the low half. An element is a step of -7 to 7, plus 8.
const (
	int4Block = 64
	int4Scale = 2 // bytes
	// leastScaled is the least largest element of a block that is not written as zeros: one over its scale must be finite.
	leastScaled = 0x1p-100
)

// leastInt4Scale is the scale of a block whose largest element is leastScaled.
var leastInt4Scale = int4ScaleOf(leastScaled)

func int4Bytes(n int) int {
	return n/int4Block*(int4Scale+int4Block/2) + (n%int4Block+1)/2 + int4Scale*min(1, n%int4Block)
}

func takeInt4(b []byte, xs []float32) {
	for len(xs) > 0 {
		n := min(len(xs), int4Block)
		takeInt4Block(b[int4Scale:int4Bytes(n)], b, xs[:n])
		b, xs = b[int4Bytes(n):], xs[n:]
	}
}

// int4ScaleOf returns the scale of a block with this largest element. It is rounded up, so that seven steps reach that, and six do not.
func int4ScaleOf(most float32) float32 {
	return math.Float32frombits((math.Float32bits(most/7) + 0xffff) &^ 0xffff)
}

// takeInt4Block writes a block's elements to b, and its scale to front.
func takeInt4Block(b, front []byte, xs []float32) {
	largest := uint32(0) // without the sign, bits are in the order of the numbers
	for _, x := range xs {
		largest = max(largest, math.Float32bits(x)&0x7fffffff)
	}
	scale, inverse := float32(0), float32(0)
	if most := math.Float32frombits(largest); most >= leastScaled {
		scale = int4ScaleOf(most)
		inverse = 1 / scale
	}
	binary.LittleEndian.PutUint16(front, uint16(math.Float32bits(scale)>>16))
	for len(xs) > 1 {
		low, high := int4Step(xs[0], inverse), int4Step(xs[1], inverse)
		xs[0] -= float32(float32(low-8) * scale)
		xs[1] -= float32(float32(high-8) * scale)
		b[0] = byte(low | high<<4)
		b, xs = b[1:], xs[2:]
	}
	if len(xs) == 1 {
		low := int4Step(xs[0], inverse)
		xs[0] -= float32(float32(low-8) * scale)
		b[0] = byte(low)
	}
}

// int4Step rounds an element to a step of a block with one over this scale.
func int4Step(x, inverse float32) int32 { return int32(float32(x*inverse) + 8.5) }

func addInt4(sum []float32, weight float32, b []byte, limit float32) error {
	for first := 0; len(sum) > 0; first += int4Block {
		n := min(len(sum), int4Block)
		scale := math.Float32frombits(uint32(binary.LittleEndian.Uint16(b)) << 16)
		if most := 7 * scale; !(most >= 0 && most < limit) || math.Signbit(float64(scale)) {
			return refused(first, most, limit)
		}
		steps, most := b[int4Scale:int4Bytes(n)], int32(0)
		for i := range sum[:n] {
			step := int32(steps[i/2] >> (4 * (i % 2)) & 15)
			if step == 0 || scale == 0 && step != 8 {
				return fmt.Errorf("%w: element %d has step %d of scale %v", wire.ErrValue, first+i, step-8, scale)
			}
			most = max(most, step-8, 8-step)
			sum[i] += float32(weight * float32(float32(step-8)*scale))
		}
		if scale != 0 && (most != 7 || scale < leastInt4Scale) {
			return fmt.Errorf("%w: the block of element %d has scale %v and steps up to %d", wire.ErrValue, first, scale, most)
		}
		if n%2 == 1 && steps[n/2]>>4 != 0 {
			return fmt.Errorf("%w: a step after the last element", wire.ErrValue)
		}
		b, sum = b[int4Bytes(n):], sum[n:]
	}
	return nil
}

// within reports whether x is finite and below limit in magnitude.
func within(x, limit float32) bool { return x < limit && x > -limit }

func refused(i int, x, limit float32) error {
	return fmt.Errorf("%w: element %d is up to %.3g, magnitudes below %.3g are accepted", wire.ErrElement, i, x, limit)
}
