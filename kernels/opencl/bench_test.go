package opencl

import (
	"testing"

	"pnode/kernels"
	"pnode/kernels/conform"
)

func BenchmarkMatMul(b *testing.B) { conform.BenchMatMul(b, openDevice(b), 768) }

func BenchmarkAttention(b *testing.B) {
	conform.BenchAttention(b, openDevice(b), kernels.AttentionShape{B: 1, T: 512, H: 4, K: 4, D: 64})
}

// BenchmarkLaunch measures what a call costs the host.
func BenchmarkLaunch(b *testing.B) {
	dev := openDevice(b)
	q, c := newQueue(b, dev), kernels.Fill(newBuffer(b, dev, kernels.F32, 1), 1, 1)
	b.ReportAllocs()
	for b.Loop() {
		q.Do(c)
	}
	if err := q.Sync(); err != nil {
		b.Fatal(err)
	}
}
