package generate

import (
	"context"
	"errors"
	"fmt"

	"pnode/kernels"
	"pnode/pipeline/model"
)

// ErrBadRequest is wrapped by errors about a prompt that the model cannot continue.
var ErrBadRequest = errors.New("generate: bad request")

// Config names a model and where it runs.
type Config struct {
	Device kernels.Device
	Model  model.Config
	// Params fills dst, [LayerLen], with a layer's parameters.
	Params func(layer int, dst []float32) error
	// Positions is how much of the sequence the model sees; 0: its context.
	Positions int
	// Sequences is how many are continued at one time; 0: one.
	Sequences int
	// Storage is what weights are stored as, and what they are multiplied with.
	Storage model.Storage
}

// Generator is a loaded model. It belongs to one goroutine.
type Generator struct {
	model   model.Config
	decoder *model.Decoder
	queue   kernels.Queue
	slots   []slot
}

// New loads the model; adapters are merged into it.
func New(cfg Config) (*Generator, error) {
	decoder, err := model.NewDecoder(model.DecoderConfig{Device: cfg.Device, Model: cfg.Model.Base(), Positions: cfg.Positions, Sequences: cfg.Sequences, Storage: cfg.Storage})
	if err != nil {
		return nil, fmt.Errorf("generate: %w", err)
	}
	queue, err := cfg.Device.NewQueue()
	if err != nil {
		decoder.Close()
		return nil, fmt.Errorf("generate: %w", err)
	}
	g := &Generator{model: cfg.Model, decoder: decoder, queue: queue, slots: make([]slot, max(1, cfg.Sequences))}
	for i := range g.slots {
		g.slots[i] = slot{number: i, logits: make([]float32, cfg.Model.Vocab)}
	}
	if err := g.load(cfg.Params); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

func (g *Generator) load(params func(layer int, dst []float32) error) error {
	for l := range g.model.Layers() {
		err := g.decoder.Fill(g.queue, l, func(dst []float32) error {
			if !g.model.LoRA.On() {
				return params(l, dst)
			}
			both := make([]float32, g.model.LayerLen(l))
			if err := params(l, both); err != nil {
				return err
			}
			copy(dst, g.model.Merge(l, both))
			return nil
		})
		if err != nil {
			return fmt.Errorf("generate: layer %d: %w", l, err)
		}
	}
	return nil
}

// Close returns the device memory back.
func (g *Generator) Close() error {
	err := g.queue.Close()
	g.decoder.Close()
	return err
}

// Request asks for a continuation.
type Request struct {
	Prompt   []int32 // at least one token
	Tokens   int     // how many to add at most
	Sampling Sampling
	// Each gets every token as it comes; it ends the continuation by false. May be nil.
	Each func(token int32) bool
}

// Generate continues the prompt and returns the added tokens. When the sequence has
// become as long as the model sees, its older half is dropped and the rest fed again. The
// error wraps ErrBadRequest, ErrBadSampling or the context's.
func (g *Generator) Generate(ctx context.Context, r Request) ([]int32, error) {
	all, err := g.Batch(ctx, []Request{r})
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

// window returns how many of the last of n tokens the model sees: all, or beyond its positions
// P a number from P/2 to P that moves in steps, so that most tokens find the others there.
func (g *Generator) window(n int) int {
	most := g.decoder.Positions()
	if n <= most {
		return n
	}
	step := max(1, most/2)
	return n - (n-most+step-1)/step*step
}
