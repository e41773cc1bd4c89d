package hardware

import (
	"fmt"
	"testing"
	"time"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/kernels/devices"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// BenchmarkPasses makes forward and backward of stacks of several sizes on the processor. The metrics are what plans count for them, as a part of the
// fastest: by the times of calls of several sizes, by rates with what calls take besides their operations, and by rates alone.
func BenchmarkPasses(b *testing.B) {
	dev, err := cpu.New(cpu.Options{})
	if err != nil {
		b.Fatal(err)
	}
	rates, err := devices.Measure(dev)
	if err != nil {
		b.Fatal(err)
	}
	speed := cost.Speed{MatMulFLOPS: rates.MatMulFLOPS, AttentionFLOPS: rates.AttentionFLOPS, MemoryBytesPerS: rates.MemoryBytesPerS}
	sized := cost.Speed{Times: rates.Times}
	for _, c := range []struct{ channels, context, batch int }{{32, 16, 1}, {64, 32, 2}, {64, 64, 4}, {128, 64, 2}, {128, 128, 4}, {256, 128, 2}, {512, 128, 4}} {
		b.Run(fmt.Sprintf("channels=%d/tokens=%d", c.channels, c.batch*c.context), func(b *testing.B) {
			m := model.Config{Vocab: 256, Context: c.context, Blocks: 4, Heads: c.channels / 32, Channels: c.channels}
			took := fastestPasses(b, dev, m, c.batch)
			predicted := func(speed cost.Speed) (nanos float64) {
				for _, k := range m.Costs(c.batch, model.StorageF32) {
					of := speed.Layer(&k)
					nanos += float64(of.Forward + of.Input + of.Weight)
				}
				return nanos
			}
			b.ReportMetric(predicted(sized)/float64(took), "predicted")
			speed.Call = schedule.Nanos(rates.CallNanos)
			b.ReportMetric(predicted(speed)/float64(took), "by-rates")
			speed.Call = 0
			b.ReportMetric(predicted(speed)/float64(took), "without-calls")
		})
	}
}

// fastestPasses returns how long forward and backward of a micro-batch take at best.
func fastestPasses(b *testing.B, dev kernels.Device, m model.Config, batch int) time.Duration {
	b.Helper()
	s, err := model.NewStack(model.StackConfig{Device: dev, Model: m, End: m.Layers(), MicroBatch: batch, Slots: 1, Moments: 2})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	q, err := dev.NewQueue()
	if err != nil {
		b.Fatal(err)
	}
	for l := range m.Layers() {
		params := make([]float32, m.LayerLen(l))
		m.InitLayer(l, 1, params)
		q.Write(s.Params(l), kernels.Float32Bytes(params))
	}
	tokens, best := make([]int32, batch*m.Context), time.Hour
	for b.Loop() {
		start := time.Now()
		s.Slot(0).SetTokens(q, tokens)
		s.Slot(0).SetTargets(q, tokens)
		s.Slot(0).Forward(q, model.Noise{})
		s.Slot(0).Backward(q, 1e-3)
		if err := q.Sync(); err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	if err := q.Close(); err != nil {
		b.Fatal(err)
	}
	return best
}
