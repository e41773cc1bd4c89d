package cpu

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pnode/kernels"
)

// against measures a call in turns with a yardstick, in processor time of one thread and by
// the best of all runs, so that the ratio holds on a busy machine.
type against struct {
	dev   *Device
	yard  kernels.Call
	count func(c kernels.Call) int64 // what is compared: FLOPs or bytes
	unit  string
	// stored is what the factors of the call are stored as, but not those of the yardstick; 0 is float32.
	stored kernels.DType
}

// bind gives a call operands of small numbers, also factors that are stored as a half.
func bind(b *testing.B, dev *Device, c kernels.Call, half kernels.DType) kernels.Call {
	info := kernels.Info(c.Op)
	for k, o := range info.Operands {
		if o.Optional && o.DType == kernels.I32 {
			continue
		}
		dtype := o.DType
		if o.Alike && half != 0 {
			dtype = half
		}
		buf, err := dev.Alloc(dtype, o.Count(c))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(buf.Free)
		c.Args[k] = kernels.Whole(buf)
		if dtype == kernels.F32 || c.Op == kernels.OpMatMulInt8 {
			copy(floats(c.Args[k]), ramp(buf.Len(), 7))
		} else if dtype == kernels.BF16 { // else it might be one page of zeros, many times
			narrowGeneric(dev.v.elements(c.Args[k]).half, ramp(buf.Len(), 7))
		}
	}
	return c
}

func (a against) run(b *testing.B, c kernels.Call) {
	c, yard := bind(b, a.dev, c, a.stored), bind(b, a.dev, a.yard, 0)
	least := [2]time.Duration{math.MaxInt64, math.MaxInt64}
	for b.Loop() {
		for i, call := range []kernels.Call{c, yard} {
			before := cpuTime()
			if err := a.dev.run(call); err != nil {
				b.Fatal(err)
			}
			least[i] = min(least[i], cpuTime()-before)
		}
	}
	rate := func(i int, call kernels.Call) float64 {
		return float64(a.count(call)) / float64(least[i].Nanoseconds())
	}
	b.ReportMetric(rate(0, c), a.unit)
	b.ReportMetric(rate(1, yard), "yard-"+a.unit)
	b.ReportMetric(rate(0, c)/rate(1, yard), "ratio")
}

// BenchmarkAttentionAgainstMatMul tells how near attention comes to a large product.
func BenchmarkAttentionAgainstMatMul(b *testing.B) {
	none := kernels.View{}
	a := against{
		dev: newDevice(b, Options{Threads: 1}), unit: "GFLOP/s", yard: kernels.MatMul(none, none, none, none, 1024, 768, 768, 0),
		count: func(c kernels.Call) int64 { return kernels.Info(c.Op).FLOPs(c) },
	}
	for _, s := range []kernels.AttentionShape{{B: 2, T: 512, H: 12, K: 12, D: 64}, {B: 2, T: 1024, H: 12, K: 12, D: 64}, {B: 16, T: 256, H: 6, K: 6, D: 64}} {
		name := fmt.Sprintf("B%dT%dH%dD%d", s.B, s.T, s.H, s.D)
		b.Run("forward/"+name, func(b *testing.B) { a.run(b, kernels.AttentionForward(none, none, none, none, s)) })
		b.Run("backward/"+name, func(b *testing.B) { a.run(b, kernels.AttentionBackward(none, none, none, none, none, none, none, s)) })
	}
}

// BenchmarkBF16AgainstF32 tells how much faster products are with factors in BF16.
func BenchmarkBF16AgainstF32(b *testing.B) {
	dev := newDevice(b, Options{Threads: 1})
	for _, s := range []struct {
		name    string
		m, n, k int
		flags   kernels.Flags
	}{
		{"NN", 1024, 3072, 768, 0},
		{"NN", 4096, 1536, 384, 0},
		{"NN", 1024, 768, 3072, 0},
		{"NT", 1024, 768, 3072, kernels.TransB},
		{"TN", 3072, 768, 1024, kernels.TransA | kernels.Accumulate},
		{"NN", 1000, 777, 333, 0},
	} {
		none := kernels.View{}
		c := kernels.MatMul(none, none, none, none, s.m, s.n, s.k, s.flags)
		a := against{dev: dev, unit: "GFLOP/s", yard: c, stored: kernels.BF16, count: func(c kernels.Call) int64 { return kernels.Info(c.Op).FLOPs(c) }}
		b.Run(fmt.Sprintf("%s/%dx%dx%d", s.name, s.m, s.n, s.k), func(b *testing.B) { a.run(b, c) })
	}
}

// BenchmarkBF16AttentionAgainstF32 tells how much faster attention is with its operands in BF16.
func BenchmarkBF16AttentionAgainstF32(b *testing.B) {
	dev := newDevice(b, Options{Threads: 1})
	none := kernels.View{}
	for _, s := range []kernels.AttentionShape{{B: 4, T: 256, H: 6, K: 6, D: 64}, {B: 1, T: 1024, H: 12, K: 12, D: 64}, {B: 1, T: 2048, H: 12, K: 3, D: 128}} {
		for _, c := range []kernels.Call{
			kernels.AttentionForward(none, none, none, none, s), kernels.AttentionBackward(none, none, none, none, none, none, none, s),
		} {
			a := against{dev: dev, unit: "GFLOP/s", yard: c, stored: kernels.BF16, count: func(c kernels.Call) int64 { return kernels.Info(c.Op).FLOPs(c) }}
			b.Run(fmt.Sprintf("%v/B%dT%dH%dK%dD%d", c.Op, s.B, s.T, s.H, s.K, s.D), func(b *testing.B) { a.run(b, c) })
		}
	}
}

// BenchmarkAgainstCopy tells how near the ops between the products come to a copy of the
// same number of bytes.
func BenchmarkAgainstCopy(b *testing.B) {
	const n, c, f, v = 2048, 768, 2048, 50257
	none := kernels.View{}
	a := against{
		dev: newDevice(b, Options{Threads: 1}), unit: "GB/s", yard: kernels.Copy(none, none, 8<<20),
		count: func(c kernels.Call) int64 { return kernels.Info(c.Op).Bytes(c) },
	}
	adam := kernels.AdamWScalars{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Correction1: 0.1, Correction2: 0.05, GradScale: 1}
	r := kernels.Random{Key: 1, Stream: 2}
	for _, call := range []kernels.Call{
		kernels.LayerNormForward(none, none, none, none, none, none, n, c, 1e-5),
		kernels.AddLayerNormForward(none, none, none, none, none, none, none, none, n, c, 1e-5),
		kernels.LayerNormBackwardInput(none, none, none, none, none, none, none, n, c),
		kernels.LayerNormBackwardWeight(none, none, none, none, none, none, n, c),
		kernels.RMSNormForward(none, none, none, none, n, c, 1e-5),
		kernels.AddRMSNormForward(none, none, none, none, none, none, n, c, 1e-5),
		kernels.RMSNormBackwardInput(none, none, none, none, none, none, n, c),
		kernels.RMSNormBackwardWeight(none, none, none, none, n, c),
		kernels.RoPE(none, none, none, kernels.RoPEShape{Rows: n, T: 1024, Heads: 24, D: 64, Width: 36 * 64}, 0),
		kernels.AttentionCached(none, none, none, none, kernels.CachedAttentionShape{AttentionShape: kernels.AttentionShape{B: 8, T: 1, H: 12, K: 12, D: 64}, Past: 1000, Max: 1024}),
		kernels.GELUForward(none, none, n*4*c), kernels.GELUBackward(none, none, none, n*4*c),
		kernels.SwiGLUForward(none, none, n, f), kernels.SwiGLUBackward(none, none, none, n, f),
		kernels.CrossEntropy(none, none, none, 128, v, 1),
		kernels.Dropout(none, none, n*c, 0, 0.1, r),
		kernels.AdamW(none, none, none, none, 4<<20, adam), kernels.SumSquares(none, none, 4<<20),
		kernels.ColumnSum(none, none, n, 4*c, 0), kernels.Add(none, none, none, n*c),
		kernels.EmbedForward(none, none, none, none, 2, 1024, c, 1000), kernels.EmbedBackward(none, none, none, none, 2, 1024, c, 1000),
		kernels.Cast(none, none, n*c),
	} {
		b.Run(call.Op.String(), func(b *testing.B) { a.run(b, call) })
	}
}

// BenchmarkFewRowsAgainstReading tells how near products of few rows, as of a token that is decoded, come to reading the weights once.
func BenchmarkFewRowsAgainstReading(b *testing.B) {
	const n, k = 50257, 768
	none := kernels.View{}
	a := against{
		dev: newDevice(b, Options{Threads: 1}), unit: "GB/s", yard: kernels.SumSquares(none, none, n*k),
		count: func(c kernels.Call) int64 { return kernels.Info(c.Op).Bytes(c) },
	}
	for _, half := range []kernels.DType{0, kernels.BF16} {
		a.stored = half
		for _, m := range []int{1, 2, 4, 8, 16, 32} {
			for name, flags := range map[string]kernels.Flags{"NN": 0, "NT": kernels.TransB} {
				b.Run(fmt.Sprintf("%v/%s/%dx%dx%d", max(half, kernels.F32), name, m, n, k), func(b *testing.B) { a.run(b, kernels.MatMul(none, none, none, none, m, n, k, flags)) })
			}
		}
	}
	a.stored = 0
	for _, m := range []int{1, 2, 4, 8, 16, 32} {
		b.Run(fmt.Sprintf("int8/%dx%dx%d", m, n, k), func(b *testing.B) { a.run(b, kernels.MatMulInt8(none, none, none, none, m, n, k)) })
	}
}
