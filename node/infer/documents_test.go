package infer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"testing"

	"pnode/kernels"
	"pnode/kernels/cpu"
	"pnode/node/dataset"
	"pnode/node/weights"
	"pnode/pipeline/model"
	"pnode/planner"
)

// end is the byte that ends documents here.
const end = 0

// memoryChunks keeps chunks by hash.
type memoryChunks map[planner.Hash][]byte

func (m memoryChunks) Chunk(_ context.Context, h planner.Hash) ([]byte, error) { return m[h], nil }

// heldOut is the data of a run whose held-out part is that text behind the end of a document.
func heldOut(t *testing.T, c model.Config, text []byte) *dataset.Dataset {
	t.Helper()
	part := append([]byte{end}, text...)
	stream := append(bytes.Repeat([]byte("x"), 9*len(part)), part...)
	h := planner.Hash(sha256.Sum256(stream))
	d, err := dataset.Open(memoryChunks{h: stream}, planner.DataSpec{
		Chunks: []planner.Hash{h}, SizeBytes: int64(len(stream)), HeldOutPermille: 100,
		Tokens: &planner.TokenSpec{WidthBytes: 1, Vocab: 256, EndOfText: end},
	}, dataset.Window{Context: c.Context, StepRows: 1, Vocab: c.Vocab})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// heldOutNats is the sum of the held-out losses as a run with masks computes them.
func heldOutNats(t *testing.T, m *weights.Model, d *dataset.Dataset) (nats float64, windows int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	device, err := cpu.New(cpu.Options{Threads: 1})
	must(err)
	defer device.Close()
	stack, err := model.NewStack(model.StackConfig{Device: device, Model: m.Config, End: m.Config.Layers(), MicroBatch: 1, Slots: 2, Moments: 2, DocumentMask: true})
	must(err)
	defer stack.Close()
	queue, err := device.NewQueue()
	must(err)
	defer queue.Close()
	for l := range m.Config.Layers() {
		params := make([]float32, m.Config.LayerLen(l))
		must(m.Layer(t.Context(), l, params))
		queue.Write(stack.Params(l), kernels.Float32Bytes(params))
		must(queue.Sync())
	}
	windows = d.HeldOutMicros(1, 8)
	for k := range windows {
		tokens, targets, err := d.HeldOut(t.Context(), k, 1)
		must(err)
		stack.SetTokens(queue, 1, tokens)
		stack.SetTargets(queue, 1, targets)
		stack.SetDocuments(queue, 1, d.DocumentStarts(tokens))
		stack.Forward(queue, 1, model.Noise{})
		stack.Loss(queue, 1)
		losses, sum := make([]float32, len(tokens)), 0.0
		queue.Read(kernels.Float32Bytes(losses), stack.Losses(1))
		must(queue.Sync())
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
			s, err := NewScorer(t.Context(), m, ScoreOptions{Threads: 2})
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
