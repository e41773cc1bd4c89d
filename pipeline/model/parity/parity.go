// Package parity is a test that a backend passes besides conform's: whole models learn on it as
// they do on another one. It is no part of the program.
package parity

import (
	"math"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/model"
)

// steps of training, and by how much losses may then differ.
const (
	trainingSteps = 50
	lossTolerance = 1e-3
)

// Run trains whole models on a device and on a reference, which it closes: GPT-2's layers, and Llama's with shared key-value
// heads, bf16 weights and attention within documents.
func Run(t *testing.T, dev kernels.Device, open func() (kernels.Device, error)) {
	t.Helper()
	reference, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reference.Close(); err != nil {
			t.Error(err)
		}
	}()
	gpt := model.Config{Vocab: 61, Context: 24, Blocks: 2, Heads: 3, Channels: 24, UntiedHead: true}
	llama := model.Config{
		Vocab: 61, Context: 24, Blocks: 2, Heads: 4, KVHeads: 2, Channels: 24, MLP: 40, UntiedHead: true,
		Norm: model.RMSNorm, Activation: model.SwiGLU, Positions: model.RoPE,
	}
	for name, c := range map[string]model.StackConfig{
		"gpt":   {Model: gpt},
		"llama": {Model: llama, Storage: model.StorageBF16, DocumentMask: true},
	} {
		t.Run(name, func(t *testing.T) {
			want, got := train(t, reference, c), train(t, dev, c)
			for step := range want {
				if !(math.Abs(got[step]-want[step]) <= lossTolerance) {
					t.Errorf("step %d: loss %v, want %v", step+1, got[step], want[step])
				}
			}
			if !(want[trainingSteps-1] < want[0]/2) {
				t.Errorf("the loss went from %v to %v: nothing was learnt", want[0], want[trainingSteps-1])
			}
			t.Logf("losses after %d steps: %v on %s, %v on %s", trainingSteps,
				got[trainingSteps-1], dev.Name(), want[trainingSteps-1], reference.Name())
		})
	}
}

// train gives the mean loss of each step on one batch that is given again and again.
func train(t *testing.T, dev kernels.Device, c model.StackConfig) (losses []float64) {
	t.Helper()
	c.Device, c.End, c.MicroBatch, c.Slots, c.Moments = dev, c.Model.Layers(), 2, 1, 2
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
	positions := c.MicroBatch * c.Model.Context
	tokens, targets, starts := batch(positions, c.Model)
	row := make([]float32, positions)
	for step := range trainingSteps {
		s.RoundWeights(q)
		s.SetTokens(q, 0, tokens)
		s.SetTargets(q, 0, targets)
		if s.Masked() {
			s.SetDocuments(q, 0, starts)
		}
		s.ZeroGrads(q)
		s.Forward(q, 0, model.Noise{})
		s.Backward(q, 0, 1/float32(positions))
		q.Read(kernels.Float32Bytes(row), s.Losses(0))
		update(q, s, c.Model.Layers(), step+1)
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
func batch(positions int, m model.Config) (tokens, targets, starts []int32) {
	for i := range positions {
		tokens = append(tokens, int32(i*i*7%m.Vocab))
		targets = append(targets, int32((i*i*7*3+5)%m.Vocab))
		starts = append(starts, int32(i%m.Context/7*7))
	}
	return tokens, targets, starts
}

// update is AdamW on every layer.
func update(q kernels.Queue, s *model.Stack, layers, step int) {
	scalars := kernels.AdamWScalars{
		LR: 5e-3, Beta1: 0.9, Beta2: 0.95, Eps: 1e-8, Decay: 0.1, GradScale: 1,
		Correction1: float32(1 - math.Pow(0.9, float64(step))), Correction2: float32(1 - math.Pow(0.95, float64(step))),
	}
	for l := range layers {
		p := s.Params(l)
		q.Do(kernels.AdamW(p, s.Moment(l, 0), s.Moment(l, 1), s.Grads(l), p.Len, scalars))
	}
}

func mean(x []float32) float64 {
	sum := 0.0
	for _, v := range x {
		sum += float64(v)
	}
	return sum / float64(len(x))
}
