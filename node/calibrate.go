package node

import (
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/planner"
)

// calibration sizes: big enough to fill the caches, small enough to take milliseconds.
const (
	calibrateRows    = 512
	calibrateBudget  = 150 * time.Millisecond // per op class
	calibrateFloats  = 4 << 20
	calibrateContext = 256
)

// calibrate measures what the planner's costs need of a device: its speed per op class.
func calibrate(dev kernels.Device, modelName string, memoryFree int64) (planner.DeviceProfile, error) {
	p := planner.DeviceProfile{Name: dev.Name(), Model: modelName, MemoryFreeBytes: memoryFree}
	q, err := dev.NewQueue()
	if err != nil {
		return p, fmt.Errorf("node: calibrate %s: %w", dev.Name(), err)
	}
	defer q.Close()
	bench := bencher{dev: dev, q: q}
	defer bench.free()

	n := calibrateRows
	a, b, c := bench.alloc(n*n), bench.alloc(n*n), bench.alloc(n*n)
	matmul := kernels.MatMul(c, a, b, kernels.View{}, n, n, n, kernels.TransB)

	s := kernels.AttentionShape{B: 4, T: calibrateContext, H: 4, K: 4, D: 64}
	rows := s.B * s.T
	out, lse, qkv := bench.alloc(rows*s.H*s.D), bench.alloc(rows*s.H), bench.alloc(rows*(s.H+2*s.K)*s.D)
	attention := kernels.AttentionForward(out, lse, qkv, kernels.View{}, s)

	x := bench.alloc(calibrateFloats)
	add := kernels.Add(x, x, x, calibrateFloats)

	flops := func(c kernels.Call) int64 { return kernels.Info(c.Op).FLOPs(c) }
	p.MatMulFLOPS = bench.rate(matmul, flops(matmul))
	p.AttentionFLOPS = bench.rate(attention, flops(attention))
	p.MemoryBytesPerS = bench.rate(add, kernels.Info(add.Op).Bytes(add))
	if bench.err != nil {
		return p, fmt.Errorf("node: calibrate %s: %w", dev.Name(), bench.err)
	}
	return p, nil
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

// rate repeats a call for about the budget and returns units per second, from the
// fastest repetition: what else the machine did meanwhile only makes others slower.
func (b *bencher) rate(c kernels.Call, units int64) int64 {
	if b.err != nil {
		return 0
	}
	best := time.Duration(1 << 62)
	for begin := time.Now(); time.Since(begin) < calibrateBudget; {
		start := time.Now()
		b.q.Do(c)
		if b.err = b.q.Sync(); b.err != nil {
			return 0
		}
		best = min(best, time.Since(start))
	}
	return int64(float64(units) / max(best.Seconds(), 1e-9))
}
