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

func BenchmarkLaunch(b *testing.B) { conform.BenchLaunch(b, openDevice(b)) }
