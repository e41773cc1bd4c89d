package model

import (
	"fmt"
	"testing"

	"pnode/kernels"
)

// outcome is what must not depend on how a step is carried out.
type outcome struct {
	losses [][]float32 // by micro-batch
	grads  [][]float32 // by layer
}

const outcomeScale = 1.0 / 64

// plain is the outcome of three micro-batches through one stack, one after the other.
func plain(t *testing.T) outcome {
	t.Helper()
	r := newRig(t, rigConfig{model: tiny, batch: tinyBatch}).load()
	return r.steps((*Stack).Backward)
}

// steps runs three micro-batches forward and back in slot 0.
func (r *rig) steps(pass func(*Stack, kernels.Queue, int)) outcome {
	r.t.Helper()
	var o outcome
	for micro := range 3 {
		o.losses = append(o.losses, r.forward(0, micro, outcomeScale))
		r.backward(0, pass)
	}
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

func splitBackward(s *Stack, q kernels.Queue, slot int) {
	s.BackwardInput(q, slot)
	s.BackwardWeight(q, slot)
}

func TestCutsAndSplitsChangeNoBit(t *testing.T) {
	want := plain(t)
	for _, cuts := range [][]int{nil, {1}, {2}, {3}, {1, 3}, {1, 2, 3}} {
		for _, split := range []bool{false, true} {
			t.Run(fmt.Sprintf("cuts %v split %v", cuts, split), func(t *testing.T) {
				r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, cuts: cuts, split: split}).load()
				pass := (*Stack).Backward
				if split {
					pass = splitBackward
				}
				compareOutcomes(t, r.steps(pass), want)
			})
		}
	}
}

// TestBackwardOnSplitStack uses the whole backward pass where the parts are possible.
func TestBackwardOnSplitStack(t *testing.T) {
	want := plain(t)
	r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, cuts: []int{2}, split: true}).load()
	compareOutcomes(t, r.steps((*Stack).Backward), want)
}

// TestBackwardInputLeavesGradients makes sure that the input pass has no weight part.
func TestBackwardInputLeavesGradients(t *testing.T) {
	r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, split: true}).load()
	r.forward(0, 0, outcomeScale)
	r.backward(0, (*Stack).BackwardInput)
	for layer, g := range r.grads() {
		if squares(g) != 0 {
			t.Errorf("layer %d has a gradient before BackwardWeight", layer)
		}
	}
}

// TestSlotsAreIndependent has all micro-batches in flight at once, in slots that do not
// follow their order, and all weight passes at the end.
func TestSlotsAreIndependent(t *testing.T) {
	want := plain(t)
	slots := []int{2, 0, 1}
	for _, split := range []bool{false, true} {
		t.Run(fmt.Sprintf("split %v", split), func(t *testing.T) {
			r := newRig(t, rigConfig{model: tiny, batch: tinyBatch, cuts: []int{2}, slots: 3, split: split}).load()
			var got outcome
			for micro, slot := range slots {
				got.losses = append(got.losses, r.forward(slot, micro, outcomeScale))
			}
			for _, slot := range slots {
				if split {
					r.backward(slot, (*Stack).BackwardInput)
				} else {
					r.backward(slot, (*Stack).Backward)
				}
			}
			for _, slot := range slots {
				if split {
					for _, s := range r.stacks {
						s.BackwardWeight(r.queue, slot)
					}
				}
			}
			got.grads = r.grads()
			compareOutcomes(t, got, want)
		})
	}
}

// TestForwardLogitsIgnoresWhatFollows pads a short sequence with two different tokens.
func TestForwardLogitsIgnoresWhatFollows(t *testing.T) {
	r := newRig(t, rigConfig{model: tiny, batch: 1, cuts: []int{2}}).load()
	const short = 5
	logits := func(padding int32) []float32 {
		tokens, _ := referenceMicro(tiny, 1, 0)
		for i := short; i < len(tokens); i++ {
			tokens[i] = padding
		}
		r.first().SetTokens(r.queue, 0, tokens)
		r.first().Forward(r.queue, 0, 0)
		r.write(r.last().Input(0), r.read(r.first().Output(0)))
		return r.read(r.last().ForwardLogits(r.queue, 0))
	}
	a, b := logits(1), logits(2)
	sameBits(t, "logits of the short sequence", a[:short*tiny.Vocab], b[:short*tiny.Vocab])
	if a[short*tiny.Vocab] == b[short*tiny.Vocab] {
		t.Error("the padding does not even change its own logits")
	}
}
