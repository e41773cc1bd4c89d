// Package parity is a test that a backend passes besides conform's: whole models learn on it as
// they do on another one. It is no part of the program.
package parity

import (
	"maps"
	"math"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/model"
)

const (
	// trainingSteps is how long losses are compared; of these a second run repeats the first fifth.
	trainingSteps = 100
	// halvesSteps is the same in RunHalves, fewSteps in short runs, which train two of the models.
	halvesSteps, fewSteps = 60, 36
	// batches are given in turns, so that steps differ.
	batches = 4
)

// family is a kind of model, and by how much the losses of two backends may differ.
type family struct {
	stack     model.StackConfig
	tolerance float64
}

// Rounding is by how much losses may differ with bf16 storage. With f16, of three bits more, it is
// half of that: in so many steps a small difference grows.
type Rounding float64

const (
	// Stored is for two devices that round what is stored: of a difference in the last bit of a
	// float32 that makes one of 1/256 now and then.
	Stored Rounding = 1e-3
	// Factors is for a device that also rounds the probabilities of attention and the gradients
	// of scores before it multiplies them, each by up to 1/512, beside one that does not.
	Factors Rounding = 4e-3
)

// families are GPT-2's layers with a tied head, and Llama's with shared key-value heads: in
// float32, and with weights in halves and attention within documents.
func families(r Rounding) map[string]family {
	gpt := model.Config{Vocab: 61, Context: 24, Blocks: 2, Heads: 3, Channels: 24}
	llama := model.Config{
		Vocab: 61, Context: 24, Blocks: 2, Heads: 4, KVHeads: 2, Channels: 24, MLP: 40, UntiedHead: true,
		Norm: model.RMSNorm, Activation: model.SwiGLU, Positions: model.RoPE,
	}
	return map[string]family{
		"gpt":           {model.StackConfig{Model: gpt}, 1e-5},
		"llama":         {model.StackConfig{Model: llama}, 1e-5},
		"llama in bf16": {model.StackConfig{Model: llama, Storage: model.StorageBF16, DocumentMask: true}, float64(r)},
		"llama in f16":  {model.StackConfig{Model: llama, Storage: model.StorageF16, DocumentMask: true}, float64(r) / 2},
	}
}

// Run trains whole models on a device and on a reference, which it closes, and wants the same
// losses within the tolerance of the family; and from a second run on the device the same bits.
func Run(t *testing.T, dev kernels.Device, open func() (kernels.Device, error), r Rounding) {
	t.Helper()
	run(t, dev, open, families(r), trainingSteps)
}

// RunHalves is Run for the models whose weights are halves, with fewer steps: for a device that emulates the
// kernels of halves, and whose other kernels are tested elsewhere.
func RunHalves(t *testing.T, dev kernels.Device, open func() (kernels.Device, error), r Rounding) {
	t.Helper()
	halves := families(r)
	maps.DeleteFunc(halves, func(_ string, f family) bool { return f.stack.Storage == model.StorageF32 })
	run(t, dev, open, halves, halvesSteps)
}

func run(t *testing.T, dev kernels.Device, open func() (kernels.Device, error), models map[string]family, steps int) {
	t.Helper()
	if testing.Short() {
		steps = fewSteps
		maps.DeleteFunc(models, func(name string, _ family) bool { return name == "llama" || name == "llama in bf16" }) // parts of the last
	}
	reference, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reference.Close(); err != nil {
			t.Error(err)
		}
	}()
	for name, f := range models {
		t.Run(name, func(t *testing.T) {
			want, got := train(t, reference, f.stack, steps), train(t, dev, f.stack, steps)
			compare(t, got, want, f.tolerance)
			for step, loss := range train(t, dev, f.stack, steps/5) {
				if math.Float64bits(loss) != math.Float64bits(got[step]) {
					t.Errorf("step %d: loss %v, and %v in a second run", step+1, got[step], loss)
				}
			}
		})
	}
}

// compare wants losses within a tolerance, and a model that learns.
func compare(t *testing.T, got, want []float64, tolerance float64) {
	t.Helper()
	worst := 0.0
	for step := range want {
		difference := math.Abs(got[step] - want[step])
		if !(difference <= tolerance) {
			t.Errorf("step %d: loss %v, want %v within %v", step+1, got[step], want[step], tolerance)
		}
		worst = max(worst, difference)
	}
	first, last := want[0], want[len(want)-1]
	if !(last < first/2) {
		t.Errorf("the loss went from %v to %v: nothing was learnt", first, last)
	}
	t.Logf("losses went from %.4f to %.4f in %d steps and differ by %.2g at most", first, last, len(want), worst)
}

// train gives the mean loss of each step.
func train(t *testing.T, dev kernels.Device, c model.StackConfig, steps int) (losses []float64) {
	t.Helper()
	c.Device, c.End, c.MicroBatch, c.Slots, c.Moments = dev, c.Model.Layers(), 2, 1, 2
	positions := c.MicroBatch * c.Model.Context
	c.ScaleBits = model.LossScaleBits(positions)
	s, err := model.NewStack(c)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	for l := range c.Model.Layers() {
		params := make([]float32, c.Model.LayerLen(l))
		c.Model.InitLayer(l, 1, params)
		q.Write(s.Params(l), kernels.Float32Bytes(params))
	}
	row := make([]float32, positions)
	for step := range steps {
		tokens, targets, starts := batch(step%batches, positions, c.Model)
		s.RoundWeights(q, model.Noise{})
		s.Slot(0).SetTokens(q, tokens)
		s.Slot(0).SetTargets(q, targets)
		if s.Masked() {
			s.Slot(0).SetDocuments(q, starts)
		}
		s.ZeroGrads(q)
		s.Slot(0).Forward(q, model.Noise{})
		s.Slot(0).Backward(q, 1/float32(positions))
		for l := range c.Model.Layers() {
			s.Unscale(q, l)
		}
		q.Read(kernels.Float32Bytes(row), s.Slot(0).Losses())
		update(q, s, c.Model, step+1)
		if err := q.Sync(); err != nil {
			t.Fatal(err)
		}
		losses = append(losses, mean(row))
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	return losses
}

// batch gives tokens, the targets that follow them by a rule, and documents of 7 tokens.
func batch(number, positions int, m model.Config) (tokens, targets, starts []int32) {
	for i := range positions {
		token := (i*i*7 + 11*number*i) % m.Vocab
		tokens = append(tokens, int32(token))
		targets = append(targets, int32((token*3+5)%m.Vocab))
		starts = append(starts, int32(i%m.Context/7*7))
	}
	return tokens, targets, starts
}

// update is AdamW on every layer. A tied matrix is updated with the embedding, by the gradients
// of both ends.
func update(q kernels.Queue, s *model.Stack, m model.Config, step int) {
	scalars := kernels.AdamWScalars{
		LR: 5e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, GradScale: 1,
		Correction1: float32(1 - math.Pow(0.9, float64(step))), Correction2: float32(1 - math.Pow(0.95, float64(step))),
	}
	head, tied := m.Layers()-1, s.SharedTail()
	if tied > 0 {
		own, tail := s.Grads(0).Slice(0, tied), s.Grads(head)
		q.Do(kernels.Add(own, own, tail.Slice(tail.Len-tied, tied), tied))
	}
	for l := range m.Layers() {
		n := s.Params(l).Len
		if l == head {
			n -= tied
		}
		q.Do(kernels.AdamW(s.Params(l).Slice(0, n), s.Moment(l, 0).Slice(0, n), s.Moment(l, 1).Slice(0, n), s.Grads(l).Slice(0, n), n, scalars))
	}
}

func mean(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return sum / float64(len(x))
}
