package infer

import (
	"bytes"
	"errors"
	"testing"

	"pnode/kernels"
	"pnode/node/dataset"
	"pnode/node/dataset/chunkstest"
	"pnode/node/weights"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// end is the byte that ends documents here.
const end = 0

// heldOut is the data of a run whose held-out part is that text behind the end of a document.
func heldOut(t *testing.T, c model.Config, text []byte) *dataset.Dataset {
	t.Helper()
	part := append([]byte{end}, text...)
	stream := append(bytes.Repeat([]byte("x"), 9*len(part)), part...)
	chunks := chunkstest.Memory{}
	h, err := chunks.Put(stream)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dataset.Open(chunks, plan.DataSpec{
		Chunks: []plan.Hash{h}, SizeBytes: int64(len(stream)), HeldOutPermille: 100,
		Tokens: &plan.TokenSpec{WidthBytes: 1, Vocab: 256, EndOfText: end},
	}, dataset.Window{Context: c.Context, StepRows: 1, Vocab: c.Vocab})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// heldOutNats is the sum of the held-out losses as a run with masks computes them.
func heldOutNats(t *testing.T, m *weights.Model, d *dataset.Dataset) (nats float64, windows int) {
	t.Helper()
	stack, queue := loaded(t, m, model.StackConfig{Slots: 2, Moments: 2, DocumentMask: true})
	windows = d.HeldOutMicros(1, 8)
	for k := range windows {
		tokens, targets, err := d.HeldOut(t.Context(), k, 1)
		must(t, err)
		stack.Slot(1).SetTokens(queue, tokens)
		stack.Slot(1).SetTargets(queue, targets)
		stack.Slot(1).SetDocuments(queue, d.DocumentStarts(tokens))
		stack.Slot(1).Forward(queue, model.Noise{})
		stack.Slot(1).Loss(queue)
		losses, sum := make([]float32, len(tokens)), 0.0
		queue.Read(kernels.Float32Bytes(losses), stack.Slot(1).Losses())
		must(t, queue.Sync())
		for _, loss := range losses {
			sum += float64(loss)
		}
		nats += sum
	}
	return nats, windows
}

// TestScoreIsTheRunsHeldOutLoss: where a run masks documents, so does the score of what it has
// learned.
func TestScoreIsTheRunsHeldOutLoss(t *testing.T) {
	for name, c := range families {
		m, text := openBytes(t, c), []byte("It is a truth universally acknowledged, that a s")
		m.Words.Ends = []int32{end}
		score := func() Score {
			s, err := NewScorer(t.Context(), m, ScoreOptions{Device: processor(t)})
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Score(t.Context(), text, nil)
			if err := errors.Join(err, s.Close()); err != nil {
				t.Fatal(err)
			}
			return got
		}
		without := score()
		m.DocumentEnd = end
		want, windows := heldOutNats(t, m, heldOut(t, c, text))
		if got := score(); got.Nats != want || got.Tokens != int64(len(text)) || windows != 2 || without.Nats == want {
			t.Errorf("%s: %+v, the run has %v nats in %d windows, without masks %+v", name, got, want, windows, without)
		}
	}
}
