package model

import (
	"fmt"
	"testing"
)

// BenchmarkStep measures forward and backward of one micro-batch on the CPU.
func BenchmarkStep(b *testing.B) {
	for _, bench := range []struct {
		preset         string
		batch, context int
	}{{"nano", 8, 128}, {"small-10m", 4, 256}, {"small-10m", 2, 1024}} {
		for _, storage := range []Storage{StorageF32, StorageBF16} {
			b.Run(fmt.Sprintf("%s/T%d/%v", bench.preset, bench.context, storage), func(b *testing.B) {
				model, err := Preset(bench.preset)
				must(b, err)
				model.Context = bench.context
				benchStep(b, model, bench.batch, storage)
			})
		}
	}
}

func benchStep(b *testing.B, model Config, batch int, storage Storage) {
	r := newRig(b, rigConfig{model: model, batch: batch, storage: storage})
	for l := range model.Layers() {
		params := make([]float32, model.LayerLen(l))
		model.InitLayer(l, 1, params)
		r.write(r.stackOf(l).Params(l), params)
	}
	r.roundWeights()
	tokens, targets := referenceMicro(model, batch, 0)
	r.first().Slot(0).SetTokens(r.queue, tokens)
	r.first().Slot(0).SetTargets(r.queue, targets)
	flops := int64(0)
	for _, c := range model.Costs(batch, storage) {
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
}
