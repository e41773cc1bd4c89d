package devices

import (
	"fmt"
	"time"

	"pnode/kernels"
)

// Rates are a device's measured speeds in float32.
type Rates struct {
	// MatMulFLOPS, AttentionFLOPS are floating-point operations a second.
	MatMulFLOPS    int64 `json:"matmul_flops"`
	AttentionFLOPS int64 `json:"attention_flops"`
	// MemoryBytesPerS is the bandwidth that element-wise kernels reach.
	MemoryBytesPerS int64 `json:"memory_bytes_per_s"`
}

// Sizes of what is measured: enough to fill the caches of a processor, in milliseconds. A
// device that takes less than briefTime for a product of productRows gets a larger one, which
// fills a large card.
const (
	productRows      = 512
	largeProductRows = 2048
	briefTime        = time.Millisecond
	rateBudget       = 150 * time.Millisecond // for each figure, and
	rateRepeats      = 3                      // at least: the first finds memory and kernels cold
	rateFloats       = 4 << 20
	rateContext      = 256
)

// Measure finds a device's rates.
func Measure(dev kernels.Device) (Rates, error) {
	var r Rates
	q, err := dev.NewQueue()
	if err != nil {
		return r, fmt.Errorf("devices: measure %s: %w", dev.Name(), err)
	}
	defer q.Close()
	bench := bencher{dev: dev, q: q}
	defer bench.free()
	r.MatMulFLOPS = bench.product(productRows)
	if brief := int64(2 * productRows * productRows * productRows * float64(time.Second/briefTime)); r.MatMulFLOPS > brief {
		r.MatMulFLOPS = max(r.MatMulFLOPS, bench.product(largeProductRows))
	}
	s := kernels.AttentionShape{B: 4, T: rateContext, H: 4, K: 4, D: 64}
	rows := s.B * s.T
	out, lse, qkv := bench.alloc(rows*s.H*s.D), bench.alloc(rows*s.H), bench.alloc(rows*(s.H+2*s.K)*s.D)
	attention := kernels.AttentionForward(out, lse, qkv, kernels.View{}, s)
	r.AttentionFLOPS = bench.rate(attention, kernels.Info(attention.Op).FLOPs(attention))

	x := bench.alloc(rateFloats)
	add := kernels.Add(x, x, x, rateFloats)
	r.MemoryBytesPerS = bench.rate(add, kernels.Info(add.Op).Bytes(add))
	if bench.err != nil {
		return r, fmt.Errorf("devices: measure %s: %w", dev.Name(), bench.err)
	}
	return r, nil
}

// bencher allocates and times; its first error sticks.
type bencher struct {
	dev     kernels.Device
	q       kernels.Queue
	buffers []kernels.Buffer
	err     error
}

func (b *bencher) alloc(count int) kernels.View {
	if b.err != nil {
		return kernels.View{}
	}
	buf, err := b.dev.Alloc(kernels.F32, count)
	if err != nil {
		b.err = err
		return kernels.View{}
	}
	b.buffers = append(b.buffers, buf)
	return kernels.Whole(buf)
}

func (b *bencher) free() {
	for _, buf := range b.buffers {
		buf.Free()
	}
}

// product is the rate of a matrix product of n rows and columns.
func (b *bencher) product(n int) int64 {
	c := kernels.MatMul(b.alloc(n*n), b.alloc(n*n), b.alloc(n*n), kernels.View{}, n, n, n, kernels.TransB)
	return b.rate(c, kernels.Info(c.Op).FLOPs(c))
}

// rate repeats a call for about the budget and returns units per second, from the fastest
// repetition: what else the machine did meanwhile only makes others slower. Calls that are
// over in a moment are made several at a time, as a step makes them: waiting for a device
// takes a moment, too.
func (b *bencher) rate(c kernels.Call, units int64) int64 {
	if b.err != nil {
		return 0
	}
	best, calls := time.Duration(1<<62), 1
	begin := time.Now()
	for n := 0; n < rateRepeats || time.Since(begin) < rateBudget; n++ {
		start := time.Now()
		for range calls {
			b.q.Do(c)
		}
		if b.err = b.q.Sync(); b.err != nil {
			return 0
		}
		took := time.Since(start)
		best = min(best, took/time.Duration(calls))
		if took < briefTime {
			calls *= 2
		}
	}
	return int64(float64(units) / max(best.Seconds(), 1e-9))
}
