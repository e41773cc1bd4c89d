package model

import "testing"

// BenchmarkStep measures forward and backward of one micro-batch on the CPU.
func BenchmarkStep(b *testing.B) {
	for _, bench := range []struct {
		preset string
		batch  int
	}{{"nano", 8}, {"small-10m", 4}} {
		b.Run(bench.preset, func(b *testing.B) {
			model, err := Preset(bench.preset)
			must(b, err)
			r := newRig(b, rigConfig{model: model, batch: bench.batch})
			for l := range model.Layers() {
				params := make([]float32, model.LayerLen(l))
				model.InitLayer(l, 1, params)
				r.write(r.stackOf(l).Params(l), params)
			}
			tokens, targets := referenceMicro(model, bench.batch, 0)
			r.first().Slot(0).SetTokens(r.queue, tokens)
			r.first().Slot(0).SetTargets(r.queue, targets)
			flops := int64(0)
			for _, c := range model.Costs(bench.batch, StorageF32) {
				flops += c.ForwardFLOPs + c.InputFLOPs + c.WeightFLOPs
			}
			for b.Loop() {
				r.first().Slot(0).Forward(r.queue, Noise{})
				r.first().Slot(0).Backward(r.queue, 1e-3)
				r.sync()
			}
			seconds := b.Elapsed().Seconds() / float64(b.N)
			b.ReportMetric(float64(len(tokens))/seconds, "tokens/s")
			b.ReportMetric(float64(flops)/seconds/1e9, "GFLOP/s")
		})
	}
}
