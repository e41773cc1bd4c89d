package pipeline

import (
	"math"
	"slices"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/muon"
	"pnode/planner/plan"
)

// Optimizer is AdamW with decoupled decay (Loshchilov and Hutter 2019, algorithm 2) over the flat
// vectors of a stage's layers, or that and Muon for the matrices of blocks. The stack holds its moments: of what Muon
// updates the first alone.
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
		first, second := moments[firstMoment].Slice(u.moments[firstMoment]-from, u.n), moments[secondMoment].Slice(u.moments[secondMoment]-from, u.n)
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
	if len(h.matrices) > 0 {
		return o.updateMatrices(q, h, gradScale, noise)
	}
	return q.Sync()
}

// updateMatrices makes the update of what Muon updates, and blocks until it is done.
func (o Optimizer) updateMatrices(q kernels.Queue, h *StageRuntime, gradScale float64, noise model.Noise) error {
	all, squares := make([]muon.Matrix, len(h.matrices)), make([]float32, len(h.matrices))
	step := muon.Step{Scale: float32(gradScale), Momentum: float32(o.train.Momentum), Rate: LearningRate(o.train, h.step), Decay: o.train.Decay}
	scratch := h.stack.Scratch()
	norms := scratch.Slice(scratch.Len-len(all), len(all))
	for i, u := range h.matrices {
		all[i] = muon.Matrix{
			Rows: u.rows, Cols: u.cols, Param: h.stack.Params(u.layer).Slice(u.params, u.n), Gradient: h.stack.Grads(u.layer).Slice(u.grads, u.n),
			Momentum: h.stack.Moment(u.layer, firstMoment).Slice(u.moments[firstMoment], u.n), Norm: norms.Slice(i, 1), Scratch: scratch,
		}
		all[i].Accumulate(q, step)
	}
	q.Read(kernels.Float32Bytes(squares), norms)
	if err := q.Sync(); err != nil {
		return err
	}
	for i, m := range all {
		u := h.matrices[i]
		m.Apply(q, step, squares[i])
		if half, how := h.stack.Rounded(u.layer, model.Range{First: u.params, End: u.params + u.n}, noise); half.Present() {
			q.Do(kernels.CastRounded(half, m.Param, u.n, how))
		}
	}
	return q.Sync()
}

// updateRange is n elements of a layer that one call of the optimizer updates: they begin at these
// offsets of the layer's parameters, its gradient and what the stack has of each of its moments.
type updateRange struct {
	layer, params, grads, n int
	moments                 [momentVectors]int
	decay                   bool
	rows, cols              int // of a matrix that is updated as a whole, 0 else; it has the first moment alone
}

// split returns the first n elements of the range, and the others.
func (u updateRange) split(n int) (head, rest updateRange) {
	head, rest = u, u
	head.n = n
	rest.params, rest.grads, rest.n = u.params+n, u.grads+n, u.n-n
	for i := range rest.moments {
		rest.moments[i] += n
	}
	return head, rest
}

// updateRanges returns the ranges of which the stack has moments, in the order of layers and
// elements, and the matrices that are updated as a whole. Tensors next to each other with the same decay are one range.
func updateRanges(stack *model.Stack, run plan.RunSpec, layers plan.LayerRange) (all, matrices []updateRange) {
	cfg := run.Model
	for l := layers.First; l < layers.End; l++ {
		end := cfg.LayerLen(l)
		if l == cfg.Layers()-1 {
			end -= stack.SharedTail() // updated with the embedding
		}
		frozen := cfg.FrozenLen(l)
		whole := run.Matrices(l)
		for _, m := range whole {
			first, owned := m.Off-frozen, stack.Owned(l, firstMoment)
			if !slices.ContainsFunc(owned, func(r model.Range) bool { return r.First <= first && first < r.End }) {
				continue // another replica has it
			}
			matrices = append(matrices, updateRange{
				layer: l, params: m.Off, grads: first, n: m.Len(), rows: m.Shape[0], cols: m.Shape[1],
				moments: [momentVectors]int{firstMoment: model.Offset(owned, first)},
			})
		}
		others := slices.DeleteFunc(cfg.LayerTensors(l), func(t model.Tensor) bool {
			return slices.ContainsFunc(whole, func(m model.Tensor) bool { return m.Name == t.Name })
		})
		for _, run := range decayRuns(others, frozen, end) {
			for _, r := range stack.Owned(l, firstMoment) {
				first, end := max(run.off-frozen, r.First), min(run.end-frozen, r.End)
				if n := end - first; n > 0 {
					u := updateRange{layer: l, params: frozen + first, grads: first, n: n, decay: run.decay}
					for i := range u.moments {
						u.moments[i] = model.Offset(stack.Owned(l, i), first)
					}
					all = append(all, u)
				}
			}
		}
	}
	return all, matrices
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
		if n := len(runs); n > 0 && runs[n-1].decay == t.Decay && runs[n-1].end == t.Off {
			runs[n-1].end = t.Off + t.Len()
			continue
		}
		runs = append(runs, decayRun{off: t.Off, end: t.Off + t.Len(), decay: t.Decay})
	}
	return runs
}
