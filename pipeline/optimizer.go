package pipeline

import (
	"math"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner"
)

// Optimizer is AdamW with decoupled decay (Loshchilov and Hutter 2019, algorithm 2) over
// the flat vectors of a stage's layers. The stack holds its moments.
type Optimizer struct{ train planner.TrainSpec }

// The vectors of AdamW's state, as numbered by Stack.Moment.
const (
	firstMoment = iota
	secondMoment
	momentVectors
)

// LearningRate is the rate of update step (from 1): linear warm-up to LR, then a cosine
// down to MinLR at the last step.
func LearningRate(t planner.TrainSpec, step planner.Step) float64 {
	if step <= t.WarmupSteps {
		return t.LR * float64(step) / float64(t.WarmupSteps)
	}
	if step >= t.Steps || t.Steps <= t.WarmupSteps {
		return t.MinLR
	}
	done := float64(step-t.WarmupSteps) / float64(t.Steps-t.WarmupSteps)
	return t.MinLR + (t.LR-t.MinLR)*0.5*(1+math.Cos(math.Pi*done))
}

// scalars are the numbers of update step with gradients multiplied by gradScale.
func (o Optimizer) scalars(step planner.Step, gradScale float64) kernels.AdamWScalars {
	t := o.train
	n := float64(step)
	return kernels.AdamWScalars{
		LR: float32(LearningRate(t, step)), Beta1: float32(t.Beta1), Beta2: float32(t.Beta2), Eps: float32(t.Eps),
		Correction1: float32(1 - math.Pow(t.Beta1, n)), Correction2: float32(1 - math.Pow(t.Beta2, n)),
		GradScale: float32(gradScale),
	}
}

// update enqueues update step of what the stack has moments of. Tensors next to each other
// with the same decay are one call.
func (o Optimizer) update(q kernels.Queue, stack *model.Stack, cfg model.Config, layers planner.LayerRange, step planner.Step, gradScale float64) {
	s := o.scalars(step, gradScale)
	for l := layers.First; l < layers.End; l++ {
		end := cfg.LayerLen(l)
		if l == cfg.Layers()-1 {
			end -= stack.SharedTail() // updated with the embedding
		}
		frozen := cfg.FrozenLen(l)
		for _, run := range decayRuns(cfg.LayerTensors(l), frozen, end) {
			s.Decay = 0
			if run.decay {
				s.Decay = float32(o.train.Decay)
			}
			owned := 0 // moments of the ranges before
			for _, r := range stack.Owned(l) {
				first, end := max(run.off-frozen, r.First), min(run.end-frozen, r.End)
				if n := end - first; n > 0 {
					kept := func(i int) kernels.View { return stack.Moment(l, i).Slice(owned+first-r.First, n) }
					q.Do(kernels.AdamW(stack.Params(l).Slice(frozen+first, n), kept(firstMoment), kept(secondMoment), stack.Grads(l).Slice(first, n), n, s))
				}
				owned += r.Len()
			}
		}
	}
}

// decayRun is a range [off, end) of a layer's flat vector with one decay setting.
type decayRun struct {
	off, end int
	decay    bool
}

// decayRuns covers the tensors that begin in [first, end) of a vector.
func decayRuns(tensors []model.Tensor, first, end int) []decayRun {
	var runs []decayRun
	for _, t := range tensors {
		if t.Off < first || t.Off >= end {
			continue
		}
		if n := len(runs); n > 0 && runs[n-1].decay == t.Decay {
			runs[n-1].end = t.Off + t.Len()
			continue
		}
		runs = append(runs, decayRun{off: t.Off, end: t.Off + t.Len(), decay: t.Decay})
	}
	return runs
}
