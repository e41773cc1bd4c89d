package pipeline

import (
	"math"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// Optimizer is AdamW with decoupled decay (Loshchilov and Hutter 2019, algorithm 2) over the flat
// vectors of a stage's layers. The stack holds its moments.
type Optimizer struct{ train plan.TrainSpec }

// The vectors of AdamW's state, as Stack.Moment numbers them.
const (
	firstMoment = iota
	secondMoment
	momentVectors
)

// LearningRate returns the rate of update step (from 1): linear warm-up to LR, then a cosine down to
// MinLR at DecayEnd, and MinLR.
func LearningRate(t plan.TrainSpec, step plan.Step) float64 {
	if step <= t.WarmupSteps {
		return t.LR * float64(step) / float64(t.WarmupSteps)
	}
	end := t.DecayEnd()
	if step >= end || end <= t.WarmupSteps {
		return t.MinLR
	}
	done := float64(step-t.WarmupSteps) / float64(end-t.WarmupSteps)
	return t.MinLR + (t.LR-t.MinLR)*0.5*(1+math.Cos(math.Pi*done))
}

// scalars returns the numbers of update step, without decay, for gradients multiplied by gradScale.
func (o Optimizer) scalars(step plan.Step, gradScale float64) kernels.AdamWScalars {
	t, n := o.train, float64(step)
	return kernels.AdamWScalars{
		LR: float32(LearningRate(t, step)), Beta1: float32(t.Beta1), Beta2: float32(t.Beta2), Eps: float32(t.Eps),
		Correction1: float32(1 - math.Pow(t.Beta1, n)), Correction2: float32(1 - math.Pow(t.Beta2, n)),
		GradScale: float32(gradScale),
	}
}

// rounding returns the noise with which parameters become BF16 after a step: none unless the run asks
// for it.
func (o Optimizer) rounding(step plan.Step) model.Noise {
	if !o.train.StochasticRounding {
		return model.Noise{}
	}
	return model.Noise{On: true, Seed: o.train.Seed, Step: int(step)}
}

// update enqueues the update of a stage to its step and blocks until it is done.
func (o Optimizer) update(q kernels.Queue, h *StageRuntime, gradScale float64) error {
	scalars, noise := o.scalars(h.step, gradScale), o.rounding(h.step)
	// The moments begin with element `from` of what the stack has of the layer's.
	adamW := func(u updateRange, moments []kernels.View, from int) {
		s := scalars
		if u.decay {
			s.Decay = float32(o.train.Decay)
		}
		half, how := h.stack.Rounded(u.layer, model.Range{First: u.params, End: u.params + u.n}, noise)
		params, grads := h.stack.Params(u.layer).Slice(u.params, u.n), h.stack.Grads(u.layer).Slice(u.grads, u.n)
		first, second := moments[firstMoment].Slice(u.moment-from, u.n), moments[secondMoment].Slice(u.moment-from, u.n)
		q.Do(kernels.AdamWRounded(params, first, second, half, grads, u.n, s, how))
	}
	if h.offload != nil {
		return h.offload.run(func(p piece, window []kernels.View) error {
			for _, u := range p.updates {
				adamW(u, window, p.first)
			}
			return q.Sync()
		})
	}
	for _, u := range h.updates {
		adamW(u, []kernels.View{h.stack.Moment(u.layer, firstMoment), h.stack.Moment(u.layer, secondMoment)}, 0)
	}
	return q.Sync()
}

// updateRange is n elements of a layer that one call of the optimizer updates: they begin at these
// offsets of the layer's parameters, its gradient and what the stack has of its moments.
type updateRange struct {
	layer, params, grads, moment, n int
	decay                           bool
}

// split returns the first n elements of the range, and the others.
func (u updateRange) split(n int) (head, rest updateRange) {
	head, rest = u, u
	head.n = n
	rest.params, rest.grads, rest.moment, rest.n = u.params+n, u.grads+n, u.moment+n, u.n-n
	return head, rest
}

// updateRanges returns the ranges of which the stack has moments, in the order of layers and
// elements. Tensors next to each other with the same decay are one.
func updateRanges(stack *model.Stack, cfg model.Config, layers plan.LayerRange) []updateRange {
	var all []updateRange
	for l := layers.First; l < layers.End; l++ {
		end := cfg.LayerLen(l)
		if l == cfg.Layers()-1 {
			end -= stack.SharedTail() // updated with the embedding
		}
		frozen := cfg.FrozenLen(l)
		for _, run := range decayRuns(cfg.LayerTensors(l), frozen, end) {
			owned := 0 // moments of the ranges before
			for _, r := range stack.Owned(l) {
				first, end := max(run.off-frozen, r.First), min(run.end-frozen, r.End)
				if n := end - first; n > 0 {
					all = append(all, updateRange{
						layer: l, params: frozen + first, grads: first, moment: owned + first - r.First, n: n, decay: run.decay,
					})
				}
				owned += r.Len()
			}
		}
	}
	return all
}

// decayRun is a range [off, end) of a layer's flat vector with one decay setting.
type decayRun struct {
	off, end int
	decay    bool
}

// decayRuns returns the runs of the tensors that begin in [first, end) of a vector.
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
