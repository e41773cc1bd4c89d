package conform

import (
	"fmt"
	"testing"

	"pnode/kernels"
)

// BenchMatMul measures products of n x n matrices of dev in each storage type.
func BenchMatMul(b *testing.B, dev kernels.Device, n int) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
		b.Run(fmt.Sprintf("%v-%d", dtype, n), func(b *testing.B) {
			v := benchViews(b, dev, dtype, n*n, n*n, n*n)
			measure(b, dev, kernels.MatMul(v[0], v[1], v[2], kernels.View{}, n, n, n, 0), kernels.Queue.Sync)
		})
	}
}

// BenchAttention measures both passes of an attention on dev.
func BenchAttention(b *testing.B, dev kernels.Device, s kernels.AttentionShape) {
	out, row := s.B*s.T*s.H*s.D, s.B*s.T*s.H
	qkv := s.B * s.T * (s.H + 2*s.K) * s.D
	v := benchViews(b, dev, kernels.F32, out, row, qkv, qkv, row, out)
	var none kernels.View
	name := fmt.Sprintf("-T%d-D%d", s.T, s.D)
	b.Run("forward"+name, func(b *testing.B) {
		measure(b, dev, kernels.AttentionForward(v[0], v[1], v[2], none, s), kernels.Queue.Sync)
	})
	b.Run("backward"+name, func(b *testing.B) {
		measure(b, dev, kernels.AttentionBackward(v[3], v[4], v[5], v[2], v[0], v[1], none, s), kernels.Queue.Sync)
	})
}

// BenchLaunch measures what a call costs the host.
func BenchLaunch(b *testing.B, dev kernels.Device) {
	c := kernels.Fill(benchViews(b, dev, kernels.F32, 1)[0], 1, 1)
	b.ReportAllocs()
	measure(b, dev, c, func(kernels.Queue) error { return nil })
}

// benchViews gives views of zeros.
func benchViews(b *testing.B, dev kernels.Device, dtype kernels.DType, counts ...int) (views []kernels.View) {
	b.Helper()
	for _, n := range counts {
		buf, err := dev.Alloc(dtype, n)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(buf.Free)
		views = append(views, kernels.Whole(buf))
	}
	return views
}

// measure executes a call again and again, and after each what is given.
func measure(b *testing.B, dev kernels.Device, c kernels.Call, after func(q kernels.Queue) error) {
	b.Helper()
	q, err := dev.NewQueue()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		q.Do(c)
		if err := after(q); err != nil {
			b.Fatal(err)
		}
	}
	flops := float64(kernels.Info(c.Op).FLOPs(c)) * float64(b.N)
	b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
	if err := q.Close(); err != nil {
		b.Error(err)
	}
}
