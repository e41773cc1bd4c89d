package cpu

import (
	"math"

	"pnode/kernels"
)

func (d *Device) cast(c kernels.Call) error {
	n, out, x := c.Dims[0], d.v.elements(c.Args[0]), d.v.elements(c.Args[1])
	switch {
	case x.half != nil && out.half != nil:
		d.ranges(n, func(from, to int) { copy(out.half[from:to], x.half[from:to]) })
	case x.half != nil:
		d.ranges(n, func(from, to int) { x.widen(out.wide[from:to], x.half[from:to]) })
	case out.half != nil:
		return d.rounded(c, c.Args[0], x.wide, func(int, int) {})
	default:
		d.copy(c)
	}
	return nil
}

// rounded computes half = x as the call says, each range of x after produce has made it.
func (d *Device) rounded(c kernels.Call, half kernels.View, x []float32, produce func(from, to int)) error {
	out := d.v.elements(half)
	if c.Flags&kernels.Stochastic == 0 {
		d.ranges(len(x), func(from, to int) {
			produce(from, to)
			out.narrow(out.half[from:to], x[from:to])
		})
		return nil
	}
	return d.randomly(c.Random, len(x), c.Dims[1], func(from, to int, words []uint32) {
		produce(from, to)
		d.v.round(out.half[from:to], x[from:to], words)
	})
}

// infinityBits are the bits of the exponent: all set in infinities and NaN.
const infinityBits = 0x7f800000

// nearestBF16 rounds float32 bits to nearest, ties to even. NaN stays a (quiet) NaN.
func nearestBF16(b uint32) uint16 {
	if b&^(1<<31) > infinityBits {
		return uint16(b>>16) | 1<<6
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func narrowGeneric(out []uint16, x []float32) {
	for i, v := range x {
		out[i] = nearestBF16(math.Float32bits(v))
	}
}

// roundGeneric rounds by chance: see kernels.Rounding.
func roundGeneric(out []uint16, x []float32, words []uint32) {
	for i, v := range x {
		b := math.Float32bits(v)
		if v == v {
			out[i] = uint16((b + words[i]>>16) >> 16)
			continue
		}
		out[i] = nearestBF16(b)
	}
}

func widenGeneric(out []float32, x []uint16) {
	for i, v := range x {
		out[i] = math.Float32frombits(uint32(v) << 16)
	}
}
