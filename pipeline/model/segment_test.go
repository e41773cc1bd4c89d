package model

import (
	"errors"
	"fmt"
	"testing"
)

// segmentMicros is how many micro-batches add up in one gradient.
func segmentMicros() int {
	if testing.Short() {
		return 2
	}
	return 3
}

// inSegments runs some micro-batches, each cut into n segments that go through all stacks one
// after the other. Nothing but the rows of a segment crosses between stacks with it.
func (r *rig) inSegments(n int) outcome {
	r.t.Helper()
	var o outcome
	for micro := range segmentMicros() {
		tokens, targets := referenceMicro(r.model, r.batch, micro)
		r.first().Slot(0).SetTokens(r.queue, tokens)
		r.last().Slot(0).SetTargets(r.queue, targets)
		for _, s := range r.stacks {
			if s.Masked() {
				s.Slot(0).SetDocuments(r.queue, halves(r.model, r.batch))
			}
		}
		r.sync()
		for i := range n {
			r.forwardSegment(Segment{i, n})
		}
		for i := n - 1; i >= 0; i-- {
			r.backwardSegment(Segment{i, n})
		}
		for _, s := range r.stacks {
			s.Slot(0).BackwardWeight(r.queue, func(int) {})
		}
		o.losses = append(o.losses, r.read(r.last().Slot(0).Losses()))
	}
	r.unscale()
	o.grads = r.grads()
	return o
}

func (r *rig) forwardSegment(g Segment) {
	r.t.Helper()
	for i, s := range r.stacks {
		if i > 0 {
			to, from := s.Rows(s.Slot(0).Input(), g), r.stacks[i-1].Rows(r.stacks[i-1].Slot(0).Output(), g)
			for k := range to {
				r.write(to[k], r.read(from[k]))
			}
		}
		s.Slot(0).ForwardSegment(r.queue, g, r.noise)
	}
}

func (r *rig) backwardSegment(g Segment) {
	r.t.Helper()
	for i := len(r.stacks) - 1; i >= 0; i-- {
		s := r.stacks[i]
		if i < len(r.stacks)-1 {
			to, from := s.Rows(s.Slot(0).OutputGrad(), g), r.stacks[i+1].Rows(r.stacks[i+1].Slot(0).InputGrad(), g)
			for k := range to {
				r.write(to[k], r.read(from[k]))
			}
		}
		s.Slot(0).Restore(r.queue, g)
		s.Slot(0).BackwardInputSegment(r.queue, g, outcomeScale)
	}
}

// inWhole is the same with whole sequences.
func (r *rig) inWhole() outcome {
	r.t.Helper()
	var o outcome
	for micro := range segmentMicros() {
		tokens, targets := referenceMicro(r.model, r.batch, micro)
		s := r.first()
		s.Slot(0).SetTokens(r.queue, tokens)
		s.Slot(0).SetTargets(r.queue, targets)
		if s.Masked() {
			s.Slot(0).SetDocuments(r.queue, halves(r.model, r.batch))
		}
		s.Slot(0).Forward(r.queue, r.noise)
		o.losses = append(o.losses, r.backward(0, outcomeScale, (*Slot).Backward))
	}
	r.unscale()
	o.grads = r.grads()
	return o
}

// halves are two documents in each sequence, the second from a third of it on.
func halves(c Config, batch int) []int32 {
	starts := make([]int32, batch*c.Context)
	for i := range starts {
		if at := c.Context / 3; i%c.Context >= at {
			starts[i] = int32(at)
		}
	}
	return starts
}

// segmented is a model with a context that may be cut into four, or two where heads share keys.
func segmented(c Config) (Config, int) {
	if c = c.Resolved(); c.Heads > c.KVHeads {
		c.Context = 2 * 256
		return c, 2
	}
	c.Context = 4 * 32
	return c, 4
}

// TestSegmentsChangeNoBit compares passes by segments with those over whole sequences, for
// every family, in every storage.
func TestSegmentsChangeNoBit(t *testing.T) {
	t.Parallel()
	eachFamily(t, func(t *testing.T, ref reference) {
		for storage := range storages {
			model, n := segmented(ref.Config)
			checkSegments(t, rigConfig{model: model, batch: tinyBatch, storage: storage}, n, int(storage))
		}
	})
}

// TestSegmentsWithDropoutMaskAndLevels has what depends on positions, and what is computed
// again.
func TestSegmentsWithDropoutMaskAndLevels(t *testing.T) {
	t.Parallel()
	llama := tinyLlama
	llama.KVHeads = llama.Heads
	gpt2, windowed := noisy()["gpt2"], llama
	gpt2.Channels, gpt2.HeadDim = 27, 9 // rows do not begin with a block of random numbers
	windowed.Window = 21
	llama.EmbedDropout, llama.ResidualDropout = 0.25, 0.125
	llama.LoRA = LoRA{Rank: 3, Alpha: 6, Targets: "q_proj,o_proj,up_proj,down_proj"}
	for i, model := range []Config{gpt2, llama, windowed} {
		for level := range recomputeLevels {
			for storage := range storages {
				if !turn(i+int(level)+int(storage), 3) {
					continue
				}
				t.Run(fmt.Sprintf("model %d, %v, %v", i, level, storage), func(t *testing.T) {
					model, n := segmented(model)
					c := rigConfig{model: model, batch: tinyBatch, level: level, storage: storage, mask: true}
					checkSegments(t, c, n, i+2*int(level))
				})
			}
		}
	}
}

// checkSegments compares n segments with the whole, over every cut or, in a quick run, one that
// depends on the case.
func checkSegments(t *testing.T, c rigConfig, n, number int) {
	t.Helper()
	c.rows = 39 // of logits: no segment ends there
	whole := newRig(t, c).load()
	whole.noise = someNoise
	want := whole.inWhole()
	c.split, c.segments = true, n
	for i, cut := range []struct {
		cuts  []int
		ahead int
	}{{nil, 0}, {[]int{2}, 1}, {nil, 3}} {
		if !turn(number+i, 3) {
			continue
		}
		c.cuts, c.ahead = cut.cuts, cut.ahead
		r := newRig(t, c).load()
		r.noise = someNoise
		compareOutcomes(t, r.inSegments(n), want)
	}
}

// TestSegmentsThatDoNotFit are refused.
func TestSegmentsThatDoNotFit(t *testing.T) {
	shared, _ := segmented(tinyLlama)
	four, _ := segmented(tiny)
	for _, c := range []struct {
		model Config
		n     int
		good  bool
	}{
		{tiny, 1, true},
		{tiny, 0, true},
		{tiny, 2, false},
		{tiny, -1, false},
		{four, 4, true},
		{four, 3, false},
		{four, 8, false},
		{shared, 2, true},
		{shared, 4, false},
	} {
		err := c.model.CheckSegments(c.n)
		if good := err == nil; good != c.good || err != nil && !errors.Is(err, ErrBadConfig) {
			t.Errorf("%d segments of %d: %v", c.n, c.model.Context, err)
		}
	}
	cfg := StackConfig{Model: four, End: tiny.Layers(), MicroBatch: 1, Slots: 1, Segments: 2}
	if _, err := cfg.Memory(); !errors.Is(err, ErrBadConfig) {
		t.Errorf("segments without a split backward: %v", err)
	}
}
