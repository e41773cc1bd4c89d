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

// Prompt is a text to continue, or several.
type Prompt struct {
	Text string
	// Texts, if there are any, are continued instead of Text, up to AtOnce at a time; text i draws with seed Sampling.Seed+i.
	Texts  []string
	AtOnce int
	// Tokens is how many to add at most to each; a token that ends a text ends it earlier.
	Tokens   int
	Sampling generate.Sampling
	// Device to compute on.
	Device kernels.Device
	// Storage of weights, and of what they are multiplied with.
	Storage model.Storage
	// Write gets the bytes of each token as it comes, and the number of its text.
	Write func(text int, b []byte) error
	// Ended is told that a text gets no more tokens. May be nil.
	Ended func(text int) error
}

// Generated says how texts were made.
type Generated struct {
	PromptTokens int // of all texts, as Tokens
	Tokens       int
	// Load is the time to bring the weights into memory, First until the first token was
	// there, Rest that of all others.
	Load, First, Rest time.Duration
	// Ended counts the texts that the model ended.
	Ended int
}

// PerSecond returns the tokens a second after the first; 0 with fewer than two.
func (g Generated) PerSecond() float64 {
	if g.Tokens < 2 || g.Rest <= 0 {
		return 0
	}
	return float64(g.Tokens-1) / g.Rest.Seconds()
}

// Generate continues texts. The error wraps weights.ErrNoWords, weights.ErrNotFinite, ErrTokens,
// generate.ErrBadRequest, generate.ErrBadSampling, kernels.ErrOutOfMemory, that of Write or Ended, or the
// context's.
func Generate(ctx context.Context, m *weights.Model, p Prompt) (g Generated, err error) {
	if m.Words == nil {
		return g, fmt.Errorf("infer: %s: %w", m.From, m.NoWords)
	}
	if err := p.Sampling.Validate(); err != nil {
		return g, err
	}
	w := writing{Prompt: p, model: m, generated: &g}
	requests, longest, err := w.requests()
	if err != nil {
		return g, err
	}
	began := time.Now()
	gen, err := generate.New(generate.Config{ // with room for as many positions as are needed
		Device: p.Device, Model: m.Config, Storage: p.Storage, Positions: min(m.Config.Context, longest+max(p.Tokens, 0)),
		Sequences: min(max(1, p.AtOnce), len(requests)),
		Params:    func(layer int, dst []float32) error { return m.FiniteLayer(ctx, layer, dst) },
	})
	if err != nil {
		return g, err
	}
	defer func() { err = errors.Join(err, gen.Close()) }()
	g.Load, w.began = time.Since(began), time.Now()
	ctx, w.stop = context.WithCancel(ctx)
	defer w.stop()
	_, err = gen.Batch(ctx, requests)
	g.Rest = time.Since(w.began) - g.First
	if w.failed != nil {
		err = w.failed
	}
	return g, err
}

// writing is a call of Generate.
type writing struct {
	Prompt
	model     *weights.Model
	generated *Generated
	began     time.Time
	tokens    []int // of each text
	failed    error // of Write or Ended: no text goes on
	stop      context.CancelFunc
}

// requests returns one for each text, and the length of the longest prompt.
func (w *writing) requests() (all []generate.Request, longest int, err error) {
	texts := w.Texts
	if len(texts) == 0 {
		texts = []string{w.Text}
	}
	w.tokens = make([]int, len(texts))
	for i, text := range texts {
		tokens := w.model.Words.Prompt([]byte(text))
		if err := checkTokens(w.model, tokens); err != nil {
			return nil, 0, err
		}
		sampling := w.Sampling
		sampling.Seed += uint64(i)
		all = append(all, generate.Request{
			Prompt: tokens, Tokens: w.Tokens, Sampling: sampling,
			Each: func(token int32) bool { return w.add(i, token) },
		})
		w.generated.PromptTokens += len(tokens)
		longest = max(longest, len(tokens))
	}
	return all, longest, nil
}

// add takes a token of a text and reports whether that goes on.
func (w *writing) add(text int, token int32) bool {
	g := w.generated
	if g.Tokens++; g.Tokens == 1 {
		g.First = time.Since(w.began)
	}
	w.tokens[text]++
	ends := w.model.Words.IsEnd(token)
	if ends {
		g.Ended++
	} else if w.failed == nil {
		w.failed = w.Write(text, w.model.Words.Bytes(token))
	}
	if (ends || w.tokens[text] == w.Tokens) && w.failed == nil && w.Ended != nil {
		w.failed = w.Ended(text)
	}
	if w.failed != nil {
		w.stop()
	}
	return !ends && w.failed == nil
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
