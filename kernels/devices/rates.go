package devices

import (
	"fmt"
	"slices"
	"time"

	"pnode/kernels"
)

// Rates are a device's measured speeds, in float32 where no other type is named.
type Rates struct {
	// MatMulFLOPS, AttentionFLOPS are floating-point operations a second.
	MatMulFLOPS    int64 `json:"matmul_flops"`
	AttentionFLOPS int64 `json:"attention_flops"`
	// MatMulBF16FLOPS are those of products of BF16 operands; 0 where they are not measured: on a
	// processor without instructions for them, which computes them in float32.
	MatMulBF16FLOPS int64 `json:"matmul_bf16_flops,omitempty"`
	// MatMulF16FLOPS are those of F16 operands; 0 on processors.
	MatMulF16FLOPS int64 `json:"matmul_f16_flops,omitempty"`
	// MemoryBytesPerS is the bandwidth that element-wise kernels reach.
	MemoryBytesPerS int64 `json:"memory_bytes_per_s"`
	// CallNanos is what a product takes besides its operations, in the median of small ones; 0 where
	// small ones are as fast as large ones.
	CallNanos int64 `json:"call_nanos"`
	// CopyBytesPerS is what comes from the host while as much goes back; 0 where the device's
	// memory is the host's.
	CopyBytesPerS int64 `json:"copy_bytes_per_s,omitempty"`
	// Times are those of calls of several sizes, TimesBF16 and TimesF16 with operands in halves: of products and
	// attention, measured in the same places as the rates.
	Times     kernels.WorkTimes `json:"times"`
	TimesBF16 kernels.WorkTimes `json:"times_bf16,omitzero"`
	TimesF16  kernels.WorkTimes `json:"times_f16,omitzero"`
}

// Measure finds a device's rates, and the times of calls of several sizes.
func Measure(dev kernels.Device) (r Rates, err error) {
	distant := false
	if d, ok := dev.(kernels.Distant); ok {
		distant = d.Distant()
	}
	all, err := calibrate(dev, distant)
	if err != nil {
		return r, fmt.Errorf("devices: measure %s: %w", dev.Name(), err)
	}
	r.Times, r.TimesBF16, r.TimesF16 = all[kernels.F32], all[kernels.BF16], all[kernels.F16]
	r.MatMulFLOPS = fastest(kernels.WorkProducts, r.Times.Products)
	r.MatMulBF16FLOPS = fastest(kernels.WorkProducts, r.TimesBF16.Products)
	r.MatMulF16FLOPS = fastest(kernels.WorkProducts, r.TimesF16.Products)
	r.AttentionFLOPS = fastest(kernels.WorkAttentionForward, r.Times.AttentionForward)
	r.MemoryBytesPerS = rateOf(kernels.WorkStreaming, r.Times.Streaming, uncached)
	r.CopyBytesPerS = rateOf(kernels.WorkCopy, r.Times.Copy, uncached)
	r.CallNanos = besides(r.Times.Products, r.MatMulFLOPS)
	return r, nil
}

// uncached is the index of a size that no cache of a processor holds.
const uncached = 5

// rateOf returns units a second at a size, 0 where nobody measured it.
func rateOf(w kernels.Work, t kernels.SizeTimes, i int) int64 {
	if !t.Measured() {
		return 0
	}
	return int64(float64(w.Sizes()[i]) * float64(time.Second) / float64(t[i]))
}

// fastest returns units a second at the size where those are most: no call is faster than a device says that it is.
func fastest(w kernels.Work, t kernels.SizeTimes) (rate int64) {
	for i := range t {
		rate = max(rate, rateOf(w, t, i))
	}
	return rate
}

// besides returns how many nanoseconds the three smallest products take longer, in the median, than their operations at
// a rate: 0 where small ones are as fast, as in plain loops.
func besides(t kernels.SizeTimes, flops int64) int64 {
	var longer [3]int64
	sizes := kernels.WorkProducts.Sizes()
	for i := range longer {
		longer[i] = max(0, t[i]-int64(float64(sizes[i])*float64(time.Second)/float64(max(flops, 1))))
	}
	slices.Sort(longer[:])
	return longer[len(longer)/2]
}
