package opencl

import (
	"testing"

	"pnode/kernels"
)

// BenchmarkMatMul measures a product of 768^3.
func BenchmarkMatMul(b *testing.B) {
	const n = 768
	q, views := benchmark(b, n*n, n*n, n*n)
	c := kernels.MatMul(views[0], views[1], views[2], kernels.View{}, n, n, n, 0)
	measure(b, q, c)
}

// BenchmarkAttention measures forward and backward of 4 heads of 64 channels over 512 positions.
func BenchmarkAttention(b *testing.B) {
	shape := kernels.AttentionShape{B: 1, T: 512, H: 4, K: 4, D: 64}
	out, row := shape.T*shape.H*shape.D, shape.T*shape.H
	q, v := benchmark(b, out, row, 3*out, 3*out, row, out)
	var none kernels.View
	b.Run("forward", func(b *testing.B) { measure(b, q, kernels.AttentionForward(v[0], v[1], v[2], none, shape)) })
	b.Run("backward", func(b *testing.B) {
		measure(b, q, kernels.AttentionBackward(v[3], v[4], v[5], v[2], v[0], v[1], none, shape))
	})
}

// BenchmarkLaunch measures what a call costs the host.
func BenchmarkLaunch(b *testing.B) {
	q, v := benchmark(b, 1)
	c := kernels.Fill(v[0], 1, 1)
	b.ReportAllocs()
	for b.Loop() {
		q.Do(c)
	}
	if err := q.Sync(); err != nil {
		b.Fatal(err)
	}
}

func benchmark(b *testing.B, counts ...int) (q kernels.Queue, views []kernels.View) {
	dev := openDevice(b)
	for _, n := range counts {
		views = append(views, newBuffer(b, dev, kernels.F32, n))
	}
	return newQueue(b, dev), views
}

func measure(b *testing.B, q kernels.Queue, c kernels.Call) {
	for b.Loop() {
		q.Do(c)
		if err := q.Sync(); err != nil {
			b.Fatal(err)
		}
	}
	flops := float64(kernels.Info(c.Op).FLOPs(c)) * float64(b.N)
	b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}
