package infer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"

	"pnode/kernels"
	"pnode/node/dataset"
	"pnode/node/dataset/synthetic"
	"pnode/node/weights"
	"pnode/pipeline/model"
)

// DefaultWindow bounds the windows of a model with a longer context, unless asked otherwise:
// memory grows with it.
const DefaultWindow = 1024

// ignored is the target of a position that does not count.
const ignored = -1

// ErrWindow says that a window does not fit the model.
var ErrWindow = errors.New("infer: bad window")

// ScoreOptions say how texts are scored.
type ScoreOptions struct {
	// Window is how many tokens the model sees at a time; 0 is its context, up to
	// DefaultWindow.
	Window int
	// Device to compute on.
	Device kernels.Device
}

// Score says how well a model predicts texts. Scores of several texts add up.
type Score struct {
	// Tokens is how many were predicted; Bytes what they stand for.
	Tokens, Bytes int64
	// Nats is the sum of the losses.
	Nats float64
	// Digits counts those of right results of sums and products among what was predicted, Right those in tokens that the model took for the
	// most likely.
	Digits, Right int64
}

// Add returns the score of both texts.
func (s Score) Add(other Score) Score {
	return Score{s.Tokens + other.Tokens, s.Bytes + other.Bytes, s.Nats + other.Nats, s.Digits + other.Digits, s.Right + other.Right}
}

// NatsPerToken returns the mean loss.
func (s Score) NatsPerToken() float64 { return s.Nats / float64(s.Tokens) }

// Perplexity returns the exponential of the mean loss.
func (s Score) Perplexity() float64 { return math.Exp(s.NatsPerToken()) }

// BitsPerByte returns a measure that compares models with different tokenizers.
func (s Score) BitsPerByte() float64 { return s.Nats / math.Ln2 / float64(s.Bytes) }

// Scorer is a loaded model. It belongs to one goroutine.
type Scorer struct {
	words  weights.Words
	source *weights.Model
	window int
	length int // T of the stack, at least window
	stack  *model.Stack
	queue  kernels.Queue
}

// NewScorer loads the model, which may be closed then. The error wraps weights.ErrNoWords,
// weights.ErrNotFinite, ErrWindow or kernels.ErrOutOfMemory.
func NewScorer(ctx context.Context, m *weights.Model, o ScoreOptions) (*Scorer, error) {
	if m.Words == nil {
		return nil, fmt.Errorf("infer: %s: %w", m.From, m.NoWords)
	}
	if o.Window == 0 {
		o.Window = min(m.Config.Context, DefaultWindow)
	}
	if o.Window < 1 || o.Window > m.Config.Context {
		return nil, fmt.Errorf("%w: %d tokens: want 1 to %d, the model's context", ErrWindow, o.Window, m.Config.Context)
	}
	c := m.Config
	if c.Positions == model.RoPE { // elsewhere the context is the length of a tensor
		c.Context = o.Window
	}
	s := &Scorer{words: *m.Words, source: m, window: o.Window, length: c.Context}
	if err := s.load(ctx, m, c, o.Device); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	debug.FreeOSMemory() // what files were read through, before the passes take theirs
	return s, nil
}

func (s *Scorer) load(ctx context.Context, m *weights.Model, c model.Config, device kernels.Device) (err error) {
	s.stack, err = model.NewStack(model.StackConfig{
		Device: device, Model: c, End: c.Layers(), MicroBatch: 1, Slots: 1,
		Recompute: model.RecomputeBlock.Uniform(c.Layers()), ForwardOnly: true, // keeps least
		DocumentMask: m.Masked(),
	})
	if err != nil {
		return fmt.Errorf("infer: %w", err)
	}
	if s.queue, err = device.NewQueue(); err != nil {
		return fmt.Errorf("infer: %w", err)
	}
	for layer := range c.Layers() {
		err := kernels.FillFrom(s.queue, s.stack.Params(layer), func(dst []float32) error { return m.FiniteLayer(ctx, layer, dst) })
		if err != nil {
			return fmt.Errorf("infer: %w", err)
		}
	}
	return nil
}

// Close gives the memory back.
func (s *Scorer) Close() (err error) {
	if s.queue != nil {
		err = s.queue.Close()
	}
	if s.stack != nil {
		s.stack.Close()
	}
	return err
}

// Score predicts a text as one document. After every window it calls progress, unless nil, with the score so far. Where
// nothing begins a document, the text's first token is not predicted. The error wraps ErrTokens or the
// context's.
func (s *Scorer) Score(ctx context.Context, text []byte, progress func(Score)) (Score, error) {
	begin := s.words.Begin()
	tokens := s.words.Encode(slices.Clone(begin), text)
	if err := checkTokens(s.source, tokens); err != nil {
		return Score{}, err
	}
	var total Score
	digits := s.digits(text, tokens, len(begin))
	for at := 0; at+1 < len(tokens); at += s.window {
		if err := ctx.Err(); err != nil {
			return Score{}, fmt.Errorf("infer: %w", err)
		}
		end := min(at+s.window+1, len(tokens))
		part, err := s.predict(tokens[at:end], digits[min(at+1, len(digits)):min(end, len(digits))])
		if err != nil {
			return Score{}, fmt.Errorf("infer: %w", err)
		}
		total = total.Add(part)
		if progress != nil {
			progress(total)
		}
	}
	total.Bytes = int64(len(text)) // exactly: a tokenizer may write a text in another way
	if len(begin) == 0 && len(tokens) > 0 {
		total.Bytes -= int64(len(s.words.Bytes(tokens[0])))
	}
	return total, nil
}

// digits returns how many digits of results each token holds, none for the first ones, which begin a text. For a text without results, as most are, it returns
// nil and takes no memory. It looks for results in what the tokens write, which a tokenizer may have changed.
func (s *Scorer) digits(text []byte, tokens []int32, begin int) []int32 {
	if !bytes.Contains(text, []byte(" = ")) {
		return nil
	}
	var written []byte
	for _, token := range tokens[begin:] {
		written = append(written, s.words.Bytes(token)...)
	}
	counts, results := make([]int32, len(tokens)), synthetic.Results(written)
	for i, token := range tokens[begin:] {
		n := len(s.words.Bytes(token))
		for _, is := range results[:n] {
			if is {
				counts[begin+i]++
			}
		}
		results = results[n:]
	}
	return counts
}

// predict scores all but the first of at most window+1 tokens. digits says how many digits of results each of those holds, or is
// empty where none does.
func (s *Scorer) predict(tokens []int32, digits []int32) (Score, error) {
	n := len(tokens) - 1
	inputs, targets := make([]int32, s.length), slices.Repeat([]int32{ignored}, s.length)
	copy(inputs, tokens[:n])
	copy(targets, tokens[1:])
	s.stack.Slot(0).SetTokens(s.queue, inputs)
	s.stack.Slot(0).SetTargets(s.queue, targets)
	if s.stack.Masked() {
		s.stack.Slot(0).SetDocuments(s.queue, dataset.DocumentStarts(inputs, s.length, s.source.DocumentEnd))
	}
	s.stack.Slot(0).Forward(s.queue, model.Noise{})
	score := Score{Tokens: int64(n)}
	row := make([]float32, s.source.Config.Vocab)
	for i, count := range digits {
		if count == 0 {
			continue
		}
		s.queue.Read(kernels.Float32Bytes(row), s.stack.Slot(0).Logits(s.queue, i, 1))
		if err := s.queue.Sync(); err != nil {
			return Score{}, err
		}
		score.Digits += int64(count)
		if slices.Index(row, slices.Max(row)) == int(tokens[i+1]) {
			score.Right += int64(count)
		}
	}
	s.stack.Slot(0).Loss(s.queue)
	losses := make([]float32, s.length)
	s.queue.Read(kernels.Float32Bytes(losses), s.stack.Slot(0).Losses())
	if err := s.queue.Sync(); err != nil {
		return Score{}, err
	}
	for i, loss := range losses[:n] {
		score.Nats += float64(loss)
		score.Bytes += int64(len(s.words.Bytes(tokens[i+1])))
	}
	return score, nil
}
