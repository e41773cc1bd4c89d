package quant

import (
	"encoding/binary"
	"math"
)

// Unfit stands in place of both sums of a group that int8 does not hold: not finite, or too small
// to be scaled.
const Unfit = -1

// InSteps are the sums that Pack gave for a group with these bytes, in squares of its scale: they
// fit float32 whatever the scale is.
func InSteps(b []byte, wrong, all float64) (w, a float32) {
	scale := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	switch {
	case wrong != wrong || scale == 0 && all > 0:
		return Unfit, Unfit
	case scale == 0:
		return 0, 0
	}
	return float32(wrong / (scale * scale)), float32(all / (scale * scale))
}

// OfSteps are the sums that InSteps was given, nearly; not ok for Unfit and what is no sum.
func OfSteps(b []byte, w, a float32) (wrong, all float64, ok bool) {
	scale := float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	return float64(w) * scale * scale, float64(a) * scale * scale, w >= 0 && a >= 0
}
