package devices

import (
	"errors"
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
	// MatMulBF16FLOPS are those of products of BF16 operands; 0 where they are not measured: on
	// the processor, which computes them in float32.
	MatMulBF16FLOPS int64 `json:"matmul_bf16_flops,omitempty"`
	// MatMulF16FLOPS are those of F16 operands, measured in the same places.
	MatMulF16FLOPS int64 `json:"matmul_f16_flops,omitempty"`
	// MemoryBytesPerS is the bandwidth that element-wise kernels reach.
	MemoryBytesPerS int64 `json:"memory_bytes_per_s"`
	// CallNanos is what a product takes besides its operations, in the median of small ones; 0 where
	// small ones are as fast as large ones.
	CallNanos int64 `json:"call_nanos"`
	// CopyBytesPerS is what comes from the host while as much goes back; 0 where the device's
	// memory is the host's.
	CopyBytesPerS int64 `json:"copy_bytes_per_s,omitempty"`
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
	r.MatMulFLOPS = bench.products(kernels.F32)
	r.CallNanos = bench.callNanos(r.MatMulFLOPS)
	if d, ok := dev.(kernels.Distant); ok && d.Distant() {
		r.MatMulBF16FLOPS = bench.products(kernels.BF16)
		r.MatMulF16FLOPS = bench.products(kernels.F16)
	}
	r.AttentionFLOPS = bench.attention()
	r.MemoryBytesPerS, r.CopyBytesPerS = bench.memory()
	if bench.err != nil {
		return r, fmt.Errorf("devices: measure %s: %w", dev.Name(), bench.err)
	}
	return r, nil
}

// attention is the rate of attention's forward.
func (b *bencher) attention() int64 {
	defer b.free()
	s := kernels.AttentionShape{B: 4, T: rateContext, H: 4, K: 4, D: 64}
	rows := s.B * s.T
	out, lse, qkv := b.alloc(kernels.F32, rows*s.H*s.D), b.alloc(kernels.F32, rows*s.H), b.alloc(kernels.F32, rows*(s.H+2*s.K)*s.D)
	c := kernels.AttentionForward(out, lse, qkv, kernels.View{}, s)
	return b.rate(c, kernels.Info(c.Op).FLOPs(c))
}

// memory is the rate of a sum of arrays and, of a distant device, of copies.
func (b *bencher) memory() (bytesPerS, copyBytesPerS int64) {
	defer b.free()
	x := b.alloc(kernels.F32, rateFloats)
	add := kernels.Add(x, x, x, rateFloats)
	bytesPerS = b.rate(add, kernels.Info(add.Op).Bytes(add))
	if distant, ok := b.dev.(kernels.Distant); ok && distant.Distant() {
		copyBytesPerS = b.copies(x)
	}
	return bytesPerS, copyBytesPerS
}

// bencher allocates and times; its first error sticks.
type bencher struct {
	dev     kernels.Device
	q       kernels.Queue
	buffers []kernels.Buffer
	err     error
}

func (b *bencher) alloc(dtype kernels.DType, count int) kernels.View {
	if b.err != nil {
		return kernels.View{}
	}
	buf, err := b.dev.Alloc(dtype, count)
	if err != nil {
		b.err = err
		return kernels.View{}
	}
	b.buffers = append(b.buffers, buf)
	return kernels.Whole(buf)
}

// free gives back what one figure took: a device has to have room for the largest only.
func (b *bencher) free() {
	for _, buf := range b.buffers {
		buf.Free()
	}
	b.buffers = nil
}

// products is the rate of matrix products of operands of a type, large ones where those are faster.
func (b *bencher) products(dtype kernels.DType) int64 {
	const brief = 2 * productRows * productRows * productRows * int64(time.Second/briefTime)
	rate := b.product(dtype, productRows)
	if rate > brief {
		rate = max(rate, b.product(dtype, largeProductRows))
	}
	return rate
}

// smallRows are the sizes of products that take about as long to begin as to compute.
var smallRows = [...]int{32, 64, 128}

// callNanos measures small products beside the rate of large ones.
func (b *bencher) callNanos(flops int64) int64 {
	var rates [len(smallRows)]int64
	for i, n := range smallRows {
		rates[i] = b.product(kernels.F32, n)
	}
	if b.err != nil {
		return 0
	}
	return besides(rates, flops)
}

// besides is how many nanoseconds products of smallRows take longer, in the median, than their
// operations at the rate of large ones: 0 where small ones are as fast, as in plain loops.
func besides(rates [len(smallRows)]int64, flops int64) int64 {
	var longer [len(smallRows)]int64
	for i, n := range smallRows {
		cubed := 2 * float64(n) * float64(n) * float64(n)
		longer[i] = max(0, int64(1e9*cubed/float64(rates[i])-1e9*cubed/float64(flops)))
	}
	slices.Sort(longer[:])
	return longer[len(longer)/2]
}

// product is the rate of a matrix product of n rows and columns, with sums in float32; 0 of operands
// that the device does not support.
func (b *bencher) product(dtype kernels.DType, n int) int64 {
	defer b.free()
	c := kernels.MatMul(b.alloc(kernels.F32, n*n), b.alloc(dtype, n*n), b.alloc(dtype, n*n), kernels.View{}, n, n, n, kernels.TransB)
	if b.err == nil && errors.Is(b.dev.Supports(c), kernels.ErrUnsupported) {
		return 0
	}
	return b.rate(c, kernels.Info(c.Op).FLOPs(c))
}

// rate is units per second of a call. Calls that are over in a moment are made several at a time,
// as a step makes them: waiting for a device takes a moment, too.
func (b *bencher) rate(c kernels.Call, units int64) int64 {
	calls := 1
	return b.fastest(func() (int64, error) {
		begin, made := time.Now(), int64(calls)
		for range calls {
			b.q.Do(c)
		}
		err := b.q.Sync()
		if time.Since(begin) < briefTime {
			calls *= 2
		}
		return units * made, err
	})
}

// copies is the rate at which one half of x is written while the other one is read.
func (b *bencher) copies(x kernels.View) int64 {
	if b.err != nil {
		return 0
	}
	back, err := b.dev.NewQueue()
	if err != nil {
		b.err = err
		return 0
	}
	defer back.Close()
	half := x.Len / 2
	sent, received := make([]byte, 4*half), make([]byte, 4*half)
	return b.fastest(func() (int64, error) {
		read := make(chan error, 1)
		go func() {
			back.Read(received, x.Slice(0, half))
			read <- back.Sync()
		}()
		b.q.Write(x.Slice(half, half), sent)
		return int64(4 * half), errors.Join(b.q.Sync(), <-read)
	})
}

// fastest repeats f, which does so many units, for about the budget and gives units per second of
// the fastest repetition: what else the machine did meanwhile only makes others slower.
func (b *bencher) fastest(f func() (units int64, err error)) int64 {
	best := 0.0
	for n, begin := 0, time.Now(); b.err == nil && (n < rateRepeats || time.Since(begin) < rateBudget); n++ {
		start := time.Now()
		var units int64
		if units, b.err = f(); b.err == nil {
			best = max(best, float64(units)/max(time.Since(start).Seconds(), 1e-9))
		}
	}
	return int64(best)
}
