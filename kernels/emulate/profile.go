package emulate

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"time"

	"pnode/kernels"
)

// ErrBadProfile is wrapped by the errors of Profile.Validate.
var ErrBadProfile = errors.New("emulate: bad profile")

// Profile has the figures that a device is made to have. A figure is needed unless its comment says what 0 means.
type Profile struct {
	// Model is the name to show, such as that of a graphics card.
	Model string
	// MatMulFLOPS, AttentionFLOPS are floating-point operations per second.
	MatMulFLOPS, AttentionFLOPS int64
	// MatMulBF16FLOPS and MatMulF16FLOPS are those of products of such operands; 0 is MatMulFLOPS.
	MatMulBF16FLOPS, MatMulF16FLOPS int64
	// MemoryBytesPerS is the bandwidth that all other calls are bound by.
	MemoryBytesPerS int64
	MemoryBytes     int64
	// CopyBytesPerS is the rate of copies between the host and the device, each way: it has
	// memory of its own. 0 is a device in the host's, to which they take no time.
	CopyBytesPerS int64
	// CallTime is what each call takes besides; 0 is none.
	CallTime time.Duration
	// HostBytes is what its node has for what is kept off the device.
	HostBytes int64
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
	if min(p.CopyBytesPerS, p.HostBytes) < 0 {
		return fmt.Errorf("%w: CopyBytesPerS is %d and HostBytes is %d: want 0 for a device in the host's memory, or more", ErrBadProfile, p.CopyBytesPerS, p.HostBytes)
	}
	if p.CallTime < 0 || p.CallTime > longestCallTime {
		return fmt.Errorf("%w: CallTime is %v: want 0 to %v", ErrBadProfile, p.CallTime, longestCallTime)
	}
	if min(p.MatMulBF16FLOPS, p.MatMulF16FLOPS) < 0 {
		return fmt.Errorf("%w: MatMulBF16FLOPS is %d and MatMulF16FLOPS is %d: want 0 for as many as MatMulFLOPS, or more", ErrBadProfile, p.MatMulBF16FLOPS, p.MatMulF16FLOPS)
	}
	return nil
}

// longestCall bounds the time of one call; a profile so slow is a mistake. longestCallTime bounds Profile.CallTime.
const (
	longestCall     = time.Hour
	longestCallTime = 10 * time.Millisecond
)

// Duration returns how long a call takes on the device: CallTime, and its operations for products and attention,
// its memory traffic for all others.
func (p Profile) Duration(c kernels.Call) time.Duration {
	info := kernels.Info(c.Op)
	switch info.Class {
	case kernels.ClassMatMul:
		return p.CallTime + perSecond(info.FLOPs(c), p.product(c))
	case kernels.ClassAttention:
		return p.CallTime + perSecond(info.FLOPs(c), p.AttentionFLOPS)
	default:
		return p.CallTime + perSecond(info.Bytes(c), p.MemoryBytesPerS)
	}
}

// product is the rate of a product, by its right operand: weights and activations have one type.
func (p Profile) product(c kernels.Call) int64 {
	rate := int64(0)
	if right := c.Args[2]; right.Present() {
		switch right.Buf.DType() {
		case kernels.BF16:
			rate = p.MatMulBF16FLOPS
		case kernels.F16:
			rate = p.MatMulF16FLOPS
		}
	}
	return cmp.Or(rate, p.MatMulFLOPS)
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
