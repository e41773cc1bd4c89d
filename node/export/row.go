package export

import (
	"math"
	"time"

	"pnode/node/api"
	"pnode/node/export/tfevents"
)

// Row is an event and when it came here.
type Row struct {
	api.Event
	Time time.Time
}

// Names of series, for TensorBoard and MLflow.
const (
	tagLoss         = "loss/train"
	tagHeldOut      = "loss/held_out"
	tagHeldOutF32   = "loss/held_out_float32"
	tagLearningRate = "optimizer/learning_rate"
	tagGradientNorm = "optimizer/gradient_norm"
	tagTokens       = "speed/tokens_per_second"
	tagStep         = "speed/step_seconds"
	tagMemory       = "memory/resident_bytes"
	tagGeneration   = "run/plan_generation"
	tagInterruption = "run/interruption_seconds"
	tagRedone       = "run/redone_steps"
	tagDrift        = "outer/drift"
	tagWaited       = "outer/waited_ratio"
	tagExchange     = "outer/exchange_seconds"
	tagBytes        = "outer/bytes_per_token"
)

// Scalars returns the finite numbers of an event by name; none for events that have none. What is not known is left out.
func Scalars(e api.Event) (all []tfevents.Scalar) {
	add := func(tag string, value *float64) {
		if value != nil && !math.IsNaN(*value) && !math.IsInf(*value, 0) {
			all = append(all, tfevents.Scalar{Tag: tag, Value: *value})
		}
	}
	known := func(tag string, value float64) {
		if value != 0 {
			add(tag, &value)
		}
	}
	switch {
	case e.Kind == api.KindStep:
		add(tagLoss, &e.Loss)
		add(tagHeldOut, e.HeldOut)
		add(tagHeldOutF32, e.HeldOutF32)
		known(tagLearningRate, e.LearningRate)
		add(tagGradientNorm, e.GradientNorm)
		known(tagTokens, e.TokensPerS)
		known(tagStep, e.StepS)
		known(tagMemory, float64(e.MemoryBytes))
		known(tagGeneration, float64(e.Generation))
	case e.Interruption != nil:
		known(tagInterruption, e.Interruption.TotalS)
		redone := float64(e.Interruption.Redone)
		add(tagRedone, &redone)
	case e.Outer != nil:
		add(tagDrift, e.Outer.Drift)
		known(tagWaited, e.Outer.WaitedShare)
		known(tagExchange, e.Outer.ExchangeS)
		known(tagBytes, e.Outer.BytesPerToken)
	}
	return all
}
