package devices

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/kernels/conform"
)

// benchMatMul measures products of n x n matrices of dev in each storage type.
func benchMatMul(b *testing.B, dev kernels.Device, n int) {
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		b.Run(fmt.Sprintf("%v-%d", dtype, n), func(b *testing.B) {
			v := conform.NewViews(b, dev, dtype, n*n, n*n, n*n)
			measure(b, dev, kernels.MatMul(v[0], v[1], v[2], kernels.View{}, n, n, n, 0))
		})
	}
}

// benchAttention measures both passes of an attention on dev in each storage type.
func benchAttention(b *testing.B, dev kernels.Device, s kernels.AttentionShape) {
	out, row := s.B*s.T*s.H*s.D, s.B*s.T*s.H
	qkv := s.B * s.T * (s.H + 2*s.K) * s.D
	rows := conform.NewViews(b, dev, kernels.F32, row, row)
	var none kernels.View
	for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16, kernels.F16} {
		v := conform.NewViews(b, dev, dtype, out, qkv, qkv, out)
		name := fmt.Sprintf("%v-T%d-D%d", dtype, s.T, s.D)
		b.Run("forward-"+name, func(b *testing.B) {
			measure(b, dev, kernels.AttentionForward(v[0], rows[0], v[1], none, s))
		})
		b.Run("backward-"+name, func(b *testing.B) {
			measure(b, dev, kernels.AttentionBackward(v[2], rows[1], v[3], v[1], v[0], rows[0], none, s))
		})
	}
}

// eachDriver runs a benchmark on the first device of each driver, which is larger where it is a card of NVIDIA's.
func eachDriver(b *testing.B, do func(b *testing.B, dev kernels.Device, card bool)) {
	for _, name := range []string{"cuda:0", "opencl:0"} {
		b.Run(name, func(b *testing.B) {
			dev, err := OpenHere(Finding{Name: name}, 0)
			if err != nil {
				b.Skip(err)
			}
			defer dev.Close()
			do(b, dev, name == "cuda:0")
		})
	}
}

func BenchmarkMatMul(b *testing.B) {
	eachDriver(b, func(b *testing.B, dev kernels.Device, card bool) {
		sizes := []int{768}
		if card {
			sizes = []int{1024, 4096, 8192}
		}
		for _, n := range sizes {
			benchMatMul(b, dev, n)
		}
	})
}

func BenchmarkAttention(b *testing.B) {
	eachDriver(b, func(b *testing.B, dev kernels.Device, card bool) {
		if !card {
			benchAttention(b, dev, kernels.AttentionShape{B: 1, T: 512, H: 4, K: 4, D: 64})
			return
		}
		for _, t := range []int{1024, 4096} {
			for _, d := range []int{64, 128} {
				heads := 2048 / d
				benchAttention(b, dev, kernels.AttentionShape{B: 4, T: t, H: heads, K: heads, D: d})
			}
		}
	})
}

// BenchmarkLaunch measures what a call costs the host.
func BenchmarkLaunch(b *testing.B) {
	eachDriver(b, func(b *testing.B, dev kernels.Device, _ bool) {
		c := kernels.Fill(conform.NewViews(b, dev, kernels.F32, 1)[0], 1, 1)
		b.ReportAllocs()
		measure(b, dev, c)
	})
}

// benchBatch is how many calls are enqueued before they are waited for: enough for the wait to
// cost little, few enough for a queue without a bound.
const benchBatch = 64

// measure executes a call again and again.
func measure(b *testing.B, dev kernels.Device, c kernels.Call) {
	b.Helper()
	q, err := dev.NewQueue()
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	for n := 1; b.Loop(); n++ {
		q.Do(c)
		if n%benchBatch == 0 {
			err = errors.Join(err, q.Sync())
		}
	}
	if err = errors.Join(err, q.Sync()); err != nil {
		b.Fatal(err)
	}
	took := time.Since(start) // the benchmark's own clock does not wait for the last batch
	if flops := float64(kernels.Info(c.Op).FLOPs(c)) * float64(b.N); flops > 0 {
		b.ReportMetric(flops/took.Seconds()/1e9, "GFLOP/s")
		b.ReportMetric(float64(took.Nanoseconds())/float64(b.N), "ns/op")
	}
	if err := q.Close(); err != nil {
		b.Error(err)
	}
}
