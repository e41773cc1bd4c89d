package infer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/kernels"
	"pnode/node/weights"
	"pnode/pipeline/generate"
	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// ErrTokens says that a text has tokens that the model lacks.
var ErrTokens = errors.New("infer: the tokenizer does not fit the model")

// Prompt is a text to continue.
type Prompt struct {
	Text string
	// Tokens is how many to add at most; a token that ends a text ends it earlier.
	Tokens   int
	Sampling generate.Sampling
	// Device to compute on.
	Device kernels.Device
	// Storage of weights, and of what they are multiplied with.
	Storage model.Storage
	// Write gets the bytes of each token as it comes.
	Write func([]byte) error
}

// Generated says how a text was made.
type Generated struct {
	PromptTokens int
	Tokens       int
	// Load is the time to bring the weights into memory, First until the first token was
	// there, Rest that of all others.
	Load, First, Rest time.Duration
	// Ended reports that the model ended the text.
	Ended bool
}

// PerSecond returns the tokens a second after the first; 0 with fewer than two.
func (g Generated) PerSecond() float64 {
	if g.Tokens < 2 || g.Rest <= 0 {
		return 0
	}
	return float64(g.Tokens-1) / g.Rest.Seconds()
}

// Generate continues a text. The error wraps weights.ErrNoWords, weights.ErrNotFinite, ErrTokens,
// generate.ErrBadRequest, generate.ErrBadSampling, kernels.ErrOutOfMemory, that of Write, or the
// context's.
func Generate(ctx context.Context, m *weights.Model, p Prompt) (g Generated, err error) {
	if m.Words == nil {
		return g, fmt.Errorf("infer: %s: %w", m.From, m.NoWords)
	}
	if err := p.Sampling.Validate(); err != nil {
		return g, err
	}
	tokens := m.Words.Prompt([]byte(p.Text))
	if err := checkTokens(m, tokens); err != nil {
		return g, err
	}
	began := time.Now()
	gen, err := generate.New(generate.Config{ // with room for as many positions as are needed
		Device: p.Device, Model: m.Config, Storage: p.Storage, Positions: min(m.Config.Context, len(tokens)+max(p.Tokens, 0)),
		Params: func(layer int, dst []float32) error { return m.FiniteLayer(ctx, layer, dst) },
	})
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, gen.Close()) }()
	g.PromptTokens, g.Load = len(tokens), time.Since(began)
	began = time.Now()
	var failed error
	_, err = gen.Generate(ctx, generate.Request{
		Prompt: tokens, Tokens: p.Tokens, Sampling: p.Sampling,
		Each: func(token int32) bool {
			if g.Tokens++; g.Tokens == 1 {
				g.First = time.Since(began)
			}
			if g.Ended = m.Words.IsEnd(token); !g.Ended {
				failed = p.Write(m.Words.Bytes(token))
			}
			return !g.Ended && failed == nil
		},
	})
	g.Rest = time.Since(began) - g.First
	return g, errors.Join(err, failed)
}

// checkTokens returns an error for a text with tokens that the model's vocabulary lacks.
func checkTokens(m *weights.Model, tokens []int32) error {
	for _, t := range tokens {
		if t < 0 || int(t) >= m.Config.Vocab {
			return fmt.Errorf("%w: %s has a vocabulary of %s, its tokenizer gives %d", ErrTokens, m.From, plan.Count(m.Config.Vocab, "token"), t)
		}
	}
	return nil
}
