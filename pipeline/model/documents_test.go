package model

import (
	"fmt"
	"testing"

	"pnode/kernels"
)

// documentAt is where the second document of the tests' rows begins.
const documentAt = 3

// runDocuments trains a slot on rows of two documents each, whose losses are those of the
// second one alone; the first one's tokens are all shifted by that much.
func (r *rig) runDocuments(pass pass, shift int32) (losses []float32, grads [][]float32) {
	r.t.Helper()
	tokens, targets := referenceMicro(r.model, r.batch, 0)
	starts := make([]int32, len(tokens))
	for i := range tokens {
		if i%r.model.Context >= documentAt {
			starts[i] = documentAt
			continue
		}
		tokens[i], targets[i] = (tokens[i]+shift)%int32(r.model.Vocab), -1
	}
	r.zeroGrads()
	r.first().Slot(0).SetTokens(r.queue, tokens)
	r.last().Slot(0).SetTargets(r.queue, targets)
	for i, s := range r.stacks {
		if i > 0 {
			r.write(s.Slot(0).Input(), r.read(r.stacks[i-1].Slot(0).Output()))
		}
		if s.Masked() {
			s.Slot(0).SetDocuments(r.queue, starts)
		}
		s.Slot(0).Forward(r.queue, r.noise)
	}
	losses = r.backward(0, 1, pass)
	return losses, r.grads()
}

func documentModels() map[string]Config {
	window := tinyLlama
	window.Window = 4
	return map[string]Config{"gpt2": tiny, "llama": tinyLlama, "window": window}
}

// TestDocumentsDoNotSeeEachOther changes the first of two documents: the losses of the
// second and the gradients of everything behind the embedding stay the same to the bit, and
// without the mask they do not.
func TestDocumentsDoNotSeeEachOther(t *testing.T) {
	for name, model := range documentModels() {
		for _, mask := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s mask %v", name, mask), func(t *testing.T) {
				r := newRig(t, rigConfig{model: model, batch: tinyBatch, mask: mask}).load()
				losses, grads := r.runDocuments((*Slot).Backward, 0)
				others, changed := r.runDocuments((*Slot).Backward, 5)
				if !mask {
					if sum64(losses) == sum64(others) {
						t.Error("the first document does not reach the second one in any case")
					}
					return
				}
				sameBits(t, "losses", others, losses)
				for layer := 1; layer < model.Layers(); layer++ {
					sameBits(t, "gradients", changed[layer], grads[layer])
				}
			})
		}
	}
}

// TestDocumentMaskIsTheSameHoweverAPassIsCarriedOut cuts, also into stacks without
// attention, splits and recomputes.
func TestDocumentMaskIsTheSameHoweverAPassIsCarriedOut(t *testing.T) {
	for name, model := range documentModels() {
		wantLosses, wantGrads := newRig(t, rigConfig{model: model, batch: tinyBatch, mask: true}).load().runDocuments((*Slot).Backward, 0)
		for _, cuts := range [][]int{nil, {1}, {2}, {1, model.Layers() - 1}} {
			for level := range recomputeLevels {
				for _, split := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s cuts %v split %v recompute %v", name, cuts, split, level), func(t *testing.T) {
						r := newRig(t, rigConfig{model: model, batch: tinyBatch, cuts: cuts, split: split, level: level, mask: true}).load()
						losses, grads := r.runDocuments(passOf(split), 0)
						sameBits(t, "losses", losses, wantLosses)
						for layer := range model.Layers() {
							sameBits(t, "gradients", grads[layer], wantGrads[layer])
						}
					})
				}
			}
		}
	}
}

// TestASecondDocumentIsLikeAFirst moves a document to the front of its row: with rotary
// positions, which are relative, its losses are nearly the same.
func TestASecondDocumentIsLikeAFirst(t *testing.T) {
	r := newRig(t, rigConfig{model: tinyLlama, batch: tinyBatch, mask: true}).load()
	want, _ := r.runDocuments((*Slot).Backward, 0)
	tokens, targets := referenceMicro(r.model, r.batch, 0)
	context := r.model.Context
	for row := 0; row < len(tokens); row += context {
		copy(tokens[row:], tokens[row+documentAt:row+context])
		copy(targets[row:], targets[row+documentAt:row+context])
	}
	r.first().Slot(0).SetTokens(r.queue, tokens)
	r.last().Slot(0).SetTargets(r.queue, targets)
	r.first().Slot(0).SetDocuments(r.queue, make([]int32, len(tokens)))
	r.first().Slot(0).Forward(r.queue, Noise{})
	r.first().Slot(0).Loss(r.queue)
	got := r.read(r.last().Slot(0).Losses())
	for i := range got {
		if i%context < context-documentAt {
			near(t, "loss", float64(got[i]), float64(want[i+documentAt]), 1e-4)
		}
	}
}

// TestOnlyAttentionIsMasked wants no starts where no attention reads them, and windows where
// the mask is off.
func TestOnlyAttentionIsMasked(t *testing.T) {
	starts := int64(kernels.I32.SizeBytes() * tinyBatch * tiny.Context)
	for _, tt := range []struct {
		first, end int
		more       int64
	}{{0, 1, 0}, {0, 2, 2 * starts}, {1, 2, 2 * starts}, {tiny.Layers() - 1, tiny.Layers(), 0}} {
		c := StackConfig{Model: tiny, First: tt.first, End: tt.end, MicroBatch: tinyBatch, Slots: 2}
		plain, err := c.Memory()
		must(t, err)
		c.DocumentMask = true
		masked, err := c.Memory()
		must(t, err)
		if got := masked.Total() - plain.Total(); got < tt.more || got > 2*tt.more { // with alignment
			t.Errorf("layers [%d,%d): the mask takes %d bytes more, want %d to twice that", tt.first, tt.end, got, tt.more)
		}
	}
}
