package dataset

import (
	"errors"
	"fmt"
	"sync/atomic"

	"pnode/planner/plan"
)

// MaxBytes bounds a stream: the names of its chunks, 16384 of 67 bytes as JSON, must fit
// into the entry of the log that begins a run.
const MaxBytes = 64 << 30

// Bounds far above sense; the number of a row of a run stays below 2^62.
const (
	maxContext = 1 << 30
	maxRows    = 1 << 28
	maxSteps   = 1 << 34
)

// Window says which windows a run wants of its stream.
type Window struct {
	// Seed of the run: the same seed gives the same samples.
	Seed uint64
	// Context is the number of positions T of a sequence.
	Context int
	// StepRows is how many sequences one step takes.
	StepRows int
	// Vocab of the model; it must hold every token of the stream.
	Vocab int
}

// Sample says which tokens a row of a step holds.
type Sample struct {
	Step plan.Step `json:"step"`
	Row  int       `json:"row"`
	// Epoch counts passes over the part to train on, from 0.
	Epoch int64 `json:"epoch"`
	// Index is the sample within its epoch, in the order of the stream; each comes once.
	Index int64 `json:"index"`
	// Token is where its T+1 tokens begin in the stream.
	Token int64 `json:"token"`
}

// Sampler decides which sample is used when. It is a pure function of its data spec and
// window, and may be used from any number of goroutines.
type Sampler struct {
	window  Window
	stream  stream
	heldOut int64                 // tokens behind the part to train on
	latest  atomic.Pointer[order] // of the epoch asked for last
}

// NewSampler checks the spec against the window. It looks at no chunk. Errors wrap
// ErrBadSpec, ErrTooLarge, ErrTooShort or ErrVocabulary.
func NewSampler(spec plan.DataSpec, w Window) (*Sampler, error) {
	err := errors.Join(checkSpec(spec), checkWindow(w))
	if err == nil {
		err = checkFit(spec, w)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	heldOut := heldOutTokens(spec, w)
	return &Sampler{window: w, heldOut: heldOut, stream: stream{
		train: spec.TokenCount() - heldOut, context: int64(w.Context),
		chunk: int64(ChunkBytes / spec.TokenBytes()),
	}}, nil
}

// heldOutTokens is the size of the held-out part: its share, and at least one sequence.
func heldOutTokens(spec plan.DataSpec, w Window) int64 {
	return max(spec.TokenCount()/1000*int64(spec.HeldOutPermille)+
		spec.TokenCount()%1000*int64(spec.HeldOutPermille)/1000, int64(w.Context)+1)
}

// EpochSamples is the number of samples of each epoch.
func (s *Sampler) EpochSamples() int64 { return s.stream.samples() }

// At returns the sample of a row in [0, StepRows) of a step from 1.
func (s *Sampler) At(step plan.Step, row int) (Sample, error) {
	if step < 1 || step > maxSteps {
		return Sample{}, fmt.Errorf("dataset: step %d: steps count from 1 to %d", step, maxSteps)
	}
	if row < 0 || row >= s.window.StepRows {
		return Sample{}, fmt.Errorf("dataset: step %d has no row %d, only 0 to %d", step, row, s.window.StepRows-1)
	}
	epoch, position := s.position(step, row)
	o := s.order(epoch)
	index := o.sample(position)
	return Sample{Step: step, Row: row, Epoch: epoch, Index: index, Token: o.token(index)}, nil
}

// Step lists the samples of all rows of a step: the audit of what it trains on.
func (s *Sampler) Step(step plan.Step) ([]Sample, error) {
	samples := make([]Sample, s.window.StepRows)
	for row := range samples {
		var err error
		if samples[row], err = s.At(step, row); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// position splits the number of a row of the run into its epoch and the place in it.
func (s *Sampler) position(step plan.Step, row int) (epoch, position int64) {
	number := (int64(step)-1)*int64(s.window.StepRows) + int64(row)
	n := s.stream.samples()
	return number / n, number % n
}

// order returns the order of an epoch: mostly the one that was asked for last.
func (s *Sampler) order(epoch int64) *order {
	if o := s.latest.Load(); o != nil && o.epoch == epoch {
		return o
	}
	o := newOrder(s.stream, s.window.Seed, epoch)
	s.latest.Store(o)
	return o
}

// DocumentStarts returns where in its row the document of each of the tokens [B,T] begins,
// for attention that is to stay within documents; all begin at 0 where the stream has no
// end-of-text token.
func (d *Dataset) DocumentStarts(tokens []int32) []int32 {
	return DocumentStarts(tokens, d.window.Context, d.spec.EndOfText())
}

// DocumentStarts returns, for tokens [B,T] flat, where in its row the document of each
// position begins, [B,T]: behind the last end-of-text token before the position, or at 0.
// Attention that is to stay within documents looks at positions [start, t] only. The
// end-of-text token belongs to the document that it ends.
func DocumentStarts(tokens []int32, context int, endOfText int32) []int32 {
	starts := make([]int32, len(tokens))
	begin := int32(0)
	for i, token := range tokens {
		t := int32(i % context)
		if t == 0 {
			begin = 0
		}
		starts[i] = begin
		if token == endOfText {
			begin = t + 1
		}
	}
	return starts
}
