package cpu

import (
	"fmt"
	"testing"

	"pnode/kernels"
)

// benchCall measures a call on buffers of ones and reports the table's FLOPs and bytes.
func benchCall(b *testing.B, threads int, c kernels.Call) {
	dev := newDevice(b, Options{Threads: threads})
	q, err := dev.NewQueue()
	if err != nil {
		b.Fatal(err)
	}
	info := kernels.Info(c.Op)
	for k, o := range info.Operands {
		buf, err := dev.Alloc(o.DType, o.Count(c))
		if err != nil {
			b.Fatal(err)
		}
		defer buf.Free()
		c.Args[k] = kernels.Whole(buf)
		if o.DType == kernels.F32 {
			q.Do(kernels.Fill(c.Args[k], buf.Len(), 1e-3))
		}
	}
	q.Do(c)
	for b.Loop() {
		q.Do(c)
	}
	if err := q.Sync(); err != nil {
		b.Fatal(err)
	}
	seconds := b.Elapsed().Seconds() / float64(b.N)
	b.ReportMetric(float64(info.FLOPs(c))/seconds/1e9, "GFLOP/s")
	b.ReportMetric(float64(info.Bytes(c))/seconds/1e9, "GB/s")
}

func benchThreads(b *testing.B, name string, c kernels.Call) {
	for _, threads := range []int{1, 2} {
		b.Run(fmt.Sprintf("%s/threads=%d", name, threads), func(b *testing.B) { benchCall(b, threads, c) })
	}
}

func BenchmarkMatMul(b *testing.B) {
	for _, s := range []struct {
		m, n, k int
		flags   kernels.Flags
		name    string
	}{
		{512, 512, 512, 0, "NN"},
		{1024, 3072, 768, 0, "NN"},
		{1024, 768, 3072, 0, "NN"},
		{4096, 384, 384, 0, "NN"},
		{4096, 1536, 384, 0, "NN"},
		{1000, 777, 333, 0, "NN"},
		{1024, 768, 3072, kernels.TransB, "NT"},
		{3072, 768, 1024, kernels.TransA | kernels.Accumulate, "TN"},
		{2048, 768, 256, kernels.TransB, "NT"},
		{2048, 256, 768, 0, "NN"},
		{768, 256, 2048, kernels.TransA | kernels.Accumulate, "TN"},
		{256, 1024, 2048, kernels.TransA | kernels.Accumulate, "TN"},
	} {
		c := kernels.MatMul(kernels.View{}, kernels.View{}, kernels.View{}, kernels.View{}, s.m, s.n, s.k, s.flags)
		benchThreads(b, fmt.Sprintf("%s/%dx%dx%d", s.name, s.m, s.n, s.k), c)
	}
}

// BenchmarkMicroKernel is the speed of the inner loop alone, on data in the nearest caches.
func BenchmarkMicroKernel(b *testing.B) {
	for _, v := range candidates() {
		for _, m := range []microKernel{v.product, v.attention} {
			b.Run(fmt.Sprintf("%s/%dx%d", v.name, m.mr, m.nr), func(b *testing.B) {
				a, p, init, c := ramp(m.mr*m.depth, 7), ramp(m.nr*m.depth, 3), ramp(m.nr, 5), ramp(m.mr*m.nr, 3)
				t := &tile{K: m.depth, A: &a[0], ARow: m.depth, ACol: 1, B: &p[0], Init: &init[0], C: &c[0], CRow: m.nr, Count: 1}
				for b.Loop() {
					m.multiply(t)
				}
				b.ReportMetric(float64(2*m.mr*m.nr*m.depth)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
			})
		}
	}
}

func BenchmarkAttention(b *testing.B) {
	for _, s := range []kernels.AttentionShape{{B: 16, T: 256, H: 6, K: 6, D: 64}, {B: 2, T: 1024, H: 12, K: 12, D: 64}} {
		name := fmt.Sprintf("B%dT%dH%dD%d", s.B, s.T, s.H, s.D)
		benchThreads(b, "forward/"+name, kernels.AttentionForward(kernels.View{}, kernels.View{}, kernels.View{}, kernels.View{}, s))
		none := kernels.View{}
		benchThreads(b, "backward/"+name, kernels.AttentionBackward(none, none, none, none, none, none, none, s))
	}
}

func BenchmarkRest(b *testing.B) {
	const n, c = 2048, 256
	none := kernels.View{}
	adam := kernels.AdamWScalars{LR: 1e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, Correction1: 0.1, Correction2: 0.05, GradScale: 1}
	for _, call := range []kernels.Call{
		kernels.GELUForward(none, none, n*4*c), kernels.GELUBackward(none, none, none, n*4*c),
		kernels.AdamW(none, none, none, none, 1<<20, adam),
		kernels.LayerNormForward(none, none, none, none, none, none, n, c, 1e-5),
		kernels.LayerNormBackwardInput(none, none, none, none, none, none, none, n, c),
		kernels.LayerNormBackwardWeight(none, none, none, none, none, none, n, c),
		kernels.CrossEntropy(none, none, none, n, c, 1),
		kernels.ColumnSum(none, none, n, c, 0),
		kernels.EmbedForward(none, none, none, none, 8, 256, c, 256),
		kernels.EmbedBackward(none, none, none, none, 8, 256, c, 256),
		kernels.SumSquares(none, none, 1<<20),
		kernels.Add(none, none, none, n*c), kernels.Scale(none, n*c, 1), kernels.Fill(none, n*c, 0), kernels.Copy(none, none, n*c),
	} {
		benchThreads(b, call.Op.String(), call)
	}
}
