package pipeline

import (
	"math"

	"pnode/planner/plan"

	"pnode/kernels"
	"pnode/pipeline/model"
)

// Optimizer is AdamW with decoupled decay (Loshchilov and Hutter 2019, algorithm 2) over
// the flat vectors of a stage's layers. The stack holds its moments.
type Optimizer struct{ train plan.TrainSpec }

// The vectors of AdamW's state, as numbered by Stack.Moment.
const (
	firstMoment = iota
	secondMoment
	momentVectors
)

// LearningRate is the rate of update step (from 1): linear warm-up to LR, then a cosine
// down to MinLR at the last step.
func LearningRate(t plan.TrainSpec, step plan.Step) float64 {
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
func (o Optimizer) scalars(step plan.Step, gradScale float64) kernels.AdamWScalars {
	t := o.train
	n := float64(step)
	return kernels.AdamWScalars{
		LR: float32(LearningRate(t, step)), Beta1: float32(t.Beta1), Beta2: float32(t.Beta2), Eps: float32(t.Eps),
		Correction1: float32(1 - math.Pow(t.Beta1, n)), Correction2: float32(1 - math.Pow(t.Beta2, n)),
		GradScale: float32(gradScale),
	}
}

// rounding is the noise with which parameters after a step become BF16: none unless the run asks
// for it.
func (o Optimizer) rounding(step plan.Step) model.Noise {
	if !o.train.StochasticRounding {
		return model.Noise{}
	}
	return model.Noise{On: true, Seed: o.train.Seed, Step: int(step)}
}

// patch is a range of a layer's elements that one call of the optimizer updates: n of them, from
// these on in the layer's parameters, its gradient and its moments.
type patch struct {
	layer, params, grads, kept, n int
	decay                         bool
}

// patches are what the stack has moments of, in the order of layers and elements. Tensors next to
// each other with the same decay are one.
func patches(stack *model.Stack, cfg model.Config, layers plan.LayerRange) []patch {
	var all []patch
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
					all = append(all, patch{layer: l, params: frozen + first, grads: first, kept: owned + first - r.First, n: n, decay: run.decay})
				}
				owned += r.Len()
			}
		}
	}
	return all
}

// split is the patch's first n elements, and the others.
func (p patch) split(n int) (head, rest patch) {
	head, rest = p, p
	head.n = n
	rest.params, rest.grads, rest.kept, rest.n = p.params+n, p.grads+n, p.kept+n, p.n-n
	return head, rest
}

// advance is one update of all that is held: the same for every patch.
type advance struct {
	scalars  kernels.AdamWScalars // without decay
	decay    float32
	rounding model.Noise
}

func (o Optimizer) advance(step plan.Step, gradScale float64) advance {
	return advance{scalars: o.scalars(step, gradScale), decay: float32(o.train.Decay), rounding: o.rounding(step)}
}

// of updates a patch, and the copy of its parameters in halves. The moments begin with the layer's
// element `from`.
func (a advance) of(p patch, stack *model.Stack, moments []kernels.View, from int) kernels.Call {
	if p.decay {
		a.scalars.Decay = a.decay
	}
	kept := func(i int) kernels.View { return moments[i].Slice(p.kept-from, p.n) }
	half, how := stack.Rounded(p.layer, model.Range{First: p.params, End: p.params + p.n}, a.rounding)
	return kernels.AdamWRounded(stack.Params(p.layer).Slice(p.params, p.n), kept(firstMoment), kept(secondMoment), half, stack.Grads(p.layer).Slice(p.grads, p.n), p.n, a.scalars, how)
}

// update makes an update of a stage, and waits for it.
func (o Optimizer) update(q kernels.Queue, h *holding, step plan.Step, gradScale float64) error {
	a := o.advance(step, gradScale)
	if h.ferry != nil {
		return h.ferry.cross(func(p piece, window []kernels.View) error {
			for _, part := range p.patches {
				q.Do(a.of(part, h.stack, window, p.first))
			}
			return q.Sync()
		})
	}
	for _, p := range h.patches {
		q.Do(a.of(p, h.stack, moments(h.stack, p.layer), 0))
	}
	return q.Sync()
}

// moments are the vectors of a layer's optimizer state.
func moments(stack *model.Stack, layer int) []kernels.View {
	return []kernels.View{stack.Moment(layer, firstMoment), stack.Moment(layer, secondMoment)}
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
