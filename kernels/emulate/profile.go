package emulate

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"pnode/kernels"
)

// ErrBadProfile is wrapped by the errors of Profile.Validate.
var ErrBadProfile = errors.New("emulate: bad profile")

// Profile is what a device is made to look like. All figures are needed.
type Profile struct {
	// Model is the name to show, such as that of a graphics card.
	Model string
	// MatMulFLOPS, AttentionFLOPS are floating-point operations per second.
	MatMulFLOPS, AttentionFLOPS int64
	// MemoryBytesPerS is the bandwidth that all other calls are bound by.
	MemoryBytesPerS int64
	MemoryBytes     int64
}

// Validate names the first figure that is missing.
func (p Profile) Validate() error {
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MatMulFLOPS", p.MatMulFLOPS},
		{"AttentionFLOPS", p.AttentionFLOPS},
		{"MemoryBytesPerS", p.MemoryBytesPerS},
		{"MemoryBytes", p.MemoryBytes},
	} {
		if f.value < 1 {
			return fmt.Errorf("%w: %s is %d: want 1 or more", ErrBadProfile, f.name, f.value)
		}
	}
	return nil
}

// longestCall bounds the time of one call; a profile so slow is a mistake.
const longestCall = time.Hour

// Duration is what a call takes on the device: its operations for products and attention,
// its memory traffic for all others.
func (p Profile) Duration(c kernels.Call) time.Duration {
	info := kernels.Info(c.Op)
	switch info.Class {
	case kernels.ClassMatMul:
		return perSecond(info.FLOPs(c), p.MatMulFLOPS)
	case kernels.ClassAttention:
		return perSecond(info.FLOPs(c), p.AttentionFLOPS)
	default:
		return perSecond(info.Bytes(c), p.MemoryBytesPerS)
	}
}

// perSecond is amount/rate, rounded down: what is cut off is less than a nanosecond.
func perSecond(amount, rate int64) time.Duration {
	if amount <= 0 {
		return 0
	}
	high, low := bits.Mul64(uint64(amount), uint64(time.Second))
	if high >= uint64(rate) {
		return longestCall
	}
	n, _ := bits.Div64(high, low, uint64(rate))
	return time.Duration(min(n, uint64(longestCall)))
}
