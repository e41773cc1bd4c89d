package model

import (
	"fmt"
	"testing"

	"pnode/kernels"
)

// BackwardInput is BackwardInputSegment for all of a micro-batch.
func (s *Slot) BackwardInput(q kernels.Queue, scale float32) {
	s.BackwardInputSegment(q, Segment{}, scale)
}

// outcome has the results that must not depend on how a step is carried out.
type outcome struct {
	losses [][]float32 // by micro-batch
	grads  [][]float32 // by layer
}

const outcomeScale = 1.0 / 64

// plain is the outcome of three micro-batches through one stack, one after the other.
func plain(t *testing.T, model Config) outcome {
	t.Helper()
	r := newRig(t, rigConfig{model: model, batch: tinyBatch}).load()
	return r.steps((*Slot).Backward)
}

// steps runs three micro-batches forward and back in slot 0.
func (r *rig) steps(pass pass) outcome {
	r.t.Helper()
	var o outcome
	for micro := range 3 {
		r.forward(0, micro)
		o.losses = append(o.losses, r.backward(0, outcomeScale, pass))
	}
	r.unscale()
	o.grads = r.grads()
	return o
}

func compareOutcomes(t *testing.T, got, want outcome) {
	t.Helper()
	for micro := range want.losses {
		sameBits(t, fmt.Sprintf("losses of micro-batch %d", micro), got.losses[micro], want.losses[micro])
	}
	for layer := range want.grads {
		sameBits(t, fmt.Sprintf("gradient of layer %d", layer), got.grads[layer], want.grads[layer])
	}
}

func splitBackward(s *Slot, q kernels.Queue, scale float32) {
	s.BackwardInput(q, scale)
	s.BackwardWeight(q, func(int) {})
}

func passOf(split bool) pass {
	if split {
		return splitBackward
	}
	return (*Slot).Backward
}

func TestCutsAndSplitsChangeNoBit(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, ref reference) { checkCuts(t, ref.Config) })
}

func checkCuts(t *testing.T, model Config) {
	want := plain(t, model)
	for _, cuts := range [][]int{nil, {1}, {2}, {3}, {1, 3}, {1, 2, 3}} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("cuts %v split %v", cuts, split), func(t *testing.T) {
				r := newRig(t, rigConfig{model: model, batch: tinyBatch, cuts: cuts, split: split}).load()
				compareOutcomes(t, r.steps(passOf(split)), want)
			})
		}
	}
}

// TestRecomputationChangesNoBit drops activations and computes them again.
func TestRecomputationChangesNoBit(t *testing.T) {
	eachFamily(t, func(t *testing.T, ref reference) { checkRecomputation(t, ref.Config) })
	t.Run("adapters", func(t *testing.T) {
		checkRecomputation(t, adapted(tinyLlama, LoRA{Rank: 3, Alpha: 6, Targets: "q_proj,o_proj,up_proj,down_proj"}))
	})
}

func checkRecomputation(t *testing.T, model Config) {
	want := plain(t, model)
	for _, level := range []Recompute{RecomputeOutputs, RecomputeBlock} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v split %v", level, split), func(t *testing.T) {
				r := newRig(t, rigConfig{model: model, batch: tinyBatch, cuts: []int{2}, level: level, split: split}).load()
				compareOutcomes(t, r.steps(passOf(split)), want)
			})
		}
	}
}

// TestChunksOfLogits cuts a micro-batch of 24 rows into chunks of 7, 7, 7 and 3. The
// losses and what goes to the layers before do not change; the head's sums over rows are
// rounded elsewhere, but alike for every cut and split.
func TestChunksOfLogits(t *testing.T) { checkChunks(t, tiny) }

func checkChunks(t *testing.T, model Config) {
	whole := plain(t, model)
	var want *outcome
	for _, cuts := range [][]int{nil, {2}, {3}} {
		for _, split := range []bool{false, true} {
			r := newRig(t, rigConfig{model: model, batch: tinyBatch, cuts: cuts, split: split, rows: 7}).load()
			got := r.steps(passOf(split))
			if want == nil {
				want = &got
			}
			compareOutcomes(t, got, *want)
			for micro := range 3 {
				sameBits(t, "losses", got.losses[micro], whole.losses[micro])
				sameBits(t, "losses of an evaluation", r.evaluate(0, micro), whole.losses[micro])
			}
			headLayer := model.Layers() - 1
			for layer := range headLayer {
				sameBits(t, "gradient", got.grads[layer], whole.grads[layer])
			}
			for i, g := range got.grads[headLayer] {
				near(t, "head's gradient", float64(g), float64(whole.grads[headLayer][i]), 1e-6)
			}
		}
	}
}

// TestBackwardOnSplitStack uses the whole backward pass where the parts are possible.
func TestBackwardOnSplitStack(t *testing.T) {
	want := plain(t, tiny)
	r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, cuts: []int{2}, split: true}).load()
	compareOutcomes(t, r.steps((*Slot).Backward), want)
}

// TestBackwardInputLeavesGradients makes sure that the input pass has no weight part.
func TestBackwardInputLeavesGradients(t *testing.T) {
	r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, split: true}).load()
	r.forward(0, 0)
	r.backward(0, outcomeScale, (*Slot).BackwardInput)
	for layer, g := range r.grads() {
		if squares(g) != 0 {
			t.Errorf("layer %d has a gradient before BackwardWeight", layer)
		}
	}
}

// TestSlotsAreIndependent has all micro-batches in flight at once, in slots that do not
// follow their order, and all weight passes at the end.
func TestSlotsAreIndependent(t *testing.T) {
	want := plain(t, tiny)
	slots := []int{2, 0, 1}
	for _, split := range []bool{false, true} {
		t.Run(fmt.Sprintf("split %v", split), func(t *testing.T) {
			r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, cuts: []int{2}, slots: 3, split: split}).load()
			var got outcome
			pass := (*Slot).Backward
			if split {
				pass = (*Slot).BackwardInput
			}
			for micro, slot := range slots {
				r.forward(slot, micro)
			}
			for _, slot := range slots {
				got.losses = append(got.losses, r.backward(slot, outcomeScale, pass))
			}
			for _, slot := range slots {
				if split {
					for _, s := range r.stacks {
						s.Slot(slot).BackwardWeight(r.queue, func(int) {})
					}
				}
			}
			got.grads = r.grads()
			compareOutcomes(t, got, want)
		})
	}
}

// TestLogitsIgnoreWhatFollows pads a short sequence with two different tokens.
func TestLogitsIgnoreWhatFollows(t *testing.T) {
	r := newRig(t, rigConfig{model: tiny, batch: 1, cuts: []int{2}}).load()
	const short = 5
	logits := func(padding int32) []float32 {
		tokens, _ := referenceMicro(tiny, 1, 0)
		for i := short; i < len(tokens); i++ {
			tokens[i] = padding
		}
		r.first().Slot(0).SetTokens(r.queue, tokens)
		r.first().Slot(0).Forward(r.queue, Noise{})
		r.write(r.last().Slot(0).Input(), r.read(r.first().Slot(0).Output()))
		r.last().Slot(0).Forward(r.queue, Noise{})
		return r.logits(0)
	}
	a, b := logits(1), logits(2)
	sameBits(t, "logits of the short sequence", a[:short*tiny.Vocab], b[:short*tiny.Vocab])
	if a[short*tiny.Vocab] == b[short*tiny.Vocab] {
		t.Error("the padding does not even change its own logits")
	}
}
