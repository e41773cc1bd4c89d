package growth

import (
	"context"
	"errors"
	"time"

	"pnode/kernels/devices"
	"pnode/node/bench"
	"pnode/pipeline"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// roundSteps is how many steps a round has.
const roundSteps = 4

// computedModel has the shape that computed rows train, but for what grows.
var computedModel = model.Config{Vocab: 256, Context: 256, Blocks: 4, Heads: 6, Channels: 192}

// computedSize returns the model and the micro-batches of a row.
func computedSize(a Axis, size int) (m model.Config, micros int) {
	m, micros = computedModel, 1
	switch a {
	case Tokens:
		micros = size
	case Sequence:
		m.Context = size
	default:
		m.Blocks = size
	}
	return m, micros
}

// A product that shows what the processor can do: large, and within its caches.
const productRows, productColumns, productTerms = 512, 768, 512

// productTime is how long the rate of products is measured in each round.
const productTime = 60 * time.Millisecond

// computed measures a row that trains for real on the processor.
func (o Options) computed(ctx context.Context, a Axis, size int, _ func(string)) (row Row, err error) {
	m, micros := computedSize(a, size)
	device, err := devices.OpenHere(devices.Finding{Name: devices.CPU}, o.Threads)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	run := plan.RunSpec{Model: m, Train: plan.TrainSpec{Micros: micros, MicroBatch: 1}}
	flops := int64(micros) * multiplied(run.Costs(model.StorageF32))
	row = Row{Axis: a, Size: size, StepTokens: micros * m.Context}
	var steps, bounds, ratios []float64
	stepAt, took, count := time.Now(), 0.0, 0
	var failed error
	round := func() { // between two rounds, on the worker's goroutine: nothing else computes
		rate, err := bench.ProductRate(device, productRows, productColumns, productTerms, productTime)
		if err != nil {
			failed = err
			return
		}
		bound := computing(flops, rate)
		steps, bounds, ratios = append(steps, took/roundSteps), append(bounds, bound), append(ratios, took/roundSteps/bound)
	}
	err = bench.Train(ctx, (o.Rounds+1)*roundSteps, bench.Alone(device, m, micros, 1), func(pipeline.StepResult) {
		took += time.Since(stepAt).Seconds()
		if count++; count%roundSteps == 0 {
			if count > roundSteps { // the first round warms up
				round()
			}
			took = 0
		}
		stepAt = time.Now()
	})
	if err = errors.Join(err, failed); err != nil {
		return row, err
	}
	row.StepMS, row.BoundMS, row.Ratio = 1e3*median(steps), 1e3*median(bounds), median(ratios)
	row.TokensPerS = 1e3 * float64(row.StepTokens) / row.StepMS
	if counts, ok := device.(interface{ PeakBytes() int64 }); ok {
		row.MemoryBytes = counts.PeakBytes()
	}
	return row, nil
}
