package pipeline

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"pnode/kernels"
	"pnode/pipeline/model"
)

// SampleConfig asks for text from a whole model on one device.
type SampleConfig struct {
	Device kernels.Device
	Model  model.Config
	// Params gives a layer's parameters, [LayerLen] float32 little endian.
	Params func(layer int) ([]byte, error)
	Prompt []int32 // at least one token
	Tokens int     // how many to add
	// Temperature divides the logits; 0 takes the most likely token.
	Temperature float64
	Seed        uint64
}

// Sample continues the prompt token by token. Each token costs a forward of a whole
// window [1,T]: meant for a glimpse at the end of a run.
func Sample(ctx context.Context, cfg SampleConfig) ([]int32, error) {
	stack, err := model.NewStack(model.StackConfig{Device: cfg.Device, Model: cfg.Model, First: 0, End: cfg.Model.Layers(), MicroBatch: 1, Slots: 1})
	if err != nil {
		return nil, fmt.Errorf("pipeline: sample: %w", err)
	}
	defer stack.Close()
	q, err := cfg.Device.NewQueue()
	if err != nil {
		return nil, fmt.Errorf("pipeline: sample: %w", err)
	}
	defer q.Close()
	for l := range cfg.Model.Layers() {
		params, err := cfg.Params(l)
		if err != nil {
			return nil, fmt.Errorf("pipeline: sample: layer %d: %w", l, err)
		}
		q.Write(stack.Params(l), params)
		if err := q.Sync(); err != nil {
			return nil, fmt.Errorf("pipeline: sample: layer %d: %w", l, err)
		}
	}
	tokens := append([]int32(nil), cfg.Prompt...)
	random := rand.New(rand.NewPCG(cfg.Seed, 0x73616d706c65))
	for range cfg.Tokens {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("pipeline: sample: %w", err)
		}
		logits, err := nextLogits(q, stack, cfg.Model, tokens)
		if err != nil {
			return nil, fmt.Errorf("pipeline: sample: %w", err)
		}
		tokens = append(tokens, pick(logits, cfg.Temperature, random))
	}
	return tokens[len(cfg.Prompt):], nil
}

// nextLogits are the logits [V] after the last token, from a window of at most T.
func nextLogits(q kernels.Queue, stack *model.Stack, m model.Config, tokens []int32) ([]float32, error) {
	window := make([]int32, m.Context)
	n := copy(window, tokens[max(0, len(tokens)-m.Context):])
	stack.SetTokens(q, 0, window)
	stack.Forward(q, 0, model.Noise{})
	logits := make([]float32, m.Vocab)
	q.Read(kernels.Float32Bytes(logits), stack.Logits(q, 0, n-1, 1))
	return logits, q.Sync()
}

// pick draws from softmax(logits / temperature).
func pick(logits []float32, temperature float64, random *rand.Rand) int32 {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		}
	}
	if temperature <= 0 {
		return int32(best)
	}
	sum := 0.0
	weights := make([]float64, len(logits))
	for i, l := range logits {
		weights[i] = math.Exp(float64(l-logits[best]) / temperature)
		sum += weights[i]
	}
	at := random.Float64() * sum
	for i, x := range weights {
		if at -= x; at < 0 {
			return int32(i)
		}
	}
	return int32(best)
}
