package generate

import (
	"context"
	"fmt"
	"slices"

	"pnode/kernels"
)

// slot is a sequence of the decoder.
type slot struct {
	number int
	busy   bool
	seen   []int32   // the tokens in the decoder
	logits []float32 // [V] for what follows them
}

// continuation is a request at work.
type continuation struct {
	Request
	number  int
	sampler *Sampler
	tokens  []int32 // with the prompt
	slot    *slot
}

// Batch continues all prompts, as many at a time as the generator has sequences, and returns the tokens added to each: weights are read
// once for a token of all. On a processor a text has the tokens that Generate gives it alone; cards may add up in another order for more
// rows. The error is that of Generate.
func (g *Generator) Batch(ctx context.Context, requests []Request) ([][]int32, error) {
	waiting, err := g.continuations(requests)
	if err != nil {
		return nil, err
	}
	for i := range g.slots {
		g.slots[i].busy = false
	}
	keep := len(requests) == 1 // what is there of a text: with a part of a prompt the rest would be fed alone, which rounds otherwise
	out := make([][]int32, len(requests))
	var running []*continuation
	for len(waiting)+len(running) > 0 {
		running, waiting = g.admit(running, waiting, keep)
		if err := g.advance(ctx, running); err != nil {
			return nil, fmt.Errorf("generate: %w", err)
		}
		running = slices.DeleteFunc(running, func(c *continuation) bool {
			if c.next() {
				return false
			}
			out[c.number] = c.tokens[len(c.Prompt):]
			c.slot.busy = false
			return true
		})
	}
	return out, nil
}

// continuations checks all requests, and returns those that ask for a token at least.
func (g *Generator) continuations(requests []Request) (all []*continuation, err error) {
	for i, r := range requests {
		c := &continuation{Request: r, number: i, tokens: slices.Clone(r.Prompt)}
		if c.sampler, err = NewSampler(r.Sampling); err != nil {
			return nil, err
		}
		if len(r.Prompt) == 0 {
			return nil, fmt.Errorf("%w: the prompt is empty: give at least one token", ErrBadRequest)
		}
		for k, t := range r.Prompt {
			if t < 0 || int(t) >= g.model.Vocab {
				return nil, fmt.Errorf("%w: token %d of the prompt is %d: the vocabulary has %d", ErrBadRequest, k, t, g.model.Vocab)
			}
		}
		if r.Tokens > 0 {
			all = append(all, c)
		}
	}
	return all, nil
}

// admit gives free sequences to those that wait, in their order, and returns who runs, by sequence, and who waits. With keep it leaves there
// what has been fed.
func (g *Generator) admit(running, waiting []*continuation, keep bool) (now, later []*continuation) {
	for i := range g.slots {
		s := &g.slots[i]
		if s.busy || len(waiting) == 0 {
			continue
		}
		if !keep {
			s.seen = nil
		}
		c := waiting[0]
		s.busy, c.slot = true, s
		waiting[0] = nil // what it takes in memory goes with its end
		running, waiting = append(running, c), waiting[1:]
	}
	slices.SortFunc(running, func(a, b *continuation) int { return a.slot.number - b.slot.number })
	return running, waiting
}

// next draws a token and reports whether another one is wanted.
func (c *continuation) next() bool {
	token := c.sampler.Pick(c.slot.logits)
	c.tokens = append(c.tokens, token)
	goes := c.Each == nil || c.Each(token)
	return goes && len(c.tokens) < len(c.Prompt)+c.Tokens
}

// advance computes the logits of each continuation. What the decoder has of its tokens already is not fed again, and equal prompts are fed
// once.
func (g *Generator) advance(ctx context.Context, running []*continuation) error {
	var step, fed []*continuation
	for _, c := range running {
		if err := ctx.Err(); err != nil {
			return err
		}
		s := c.slot
		seen := c.tokens[len(c.tokens)-g.window(len(c.tokens)):]
		same := 0
		for same < len(s.seen) && same < len(seen)-1 && s.seen[same] == seen[same] { // the last one gives the logits
			same++
		}
		g.decoder.Truncate(s.number, same)
		s.seen = append(s.seen[:same], seen[same:]...)
		if len(seen)-same == 1 {
			step = append(step, c)
			continue
		}
		if k := slices.IndexFunc(fed, func(f *continuation) bool { return slices.Equal(f.slot.seen, seen) }); k >= 0 {
			g.decoder.Copy(g.queue, s.number, fed[k].slot.number)
			copy(s.logits, fed[k].slot.logits)
			continue
		}
		fed = append(fed, c)
		g.queue.Read(kernels.Float32Bytes(s.logits), g.decoder.Feed(g.queue, s.number, seen[same:]))
		if err := g.queue.Sync(); err != nil {
			return err
		}
	}
	return g.step(step)
}

// step feeds the last token of each continuation.
func (g *Generator) step(all []*continuation) error {
	if len(all) == 0 {
		return g.queue.Sync()
	}
	sequences, tokens := make([]int, len(all)), make([]int32, len(all))
	for i, c := range all {
		sequences[i], tokens[i] = c.slot.number, c.tokens[len(c.tokens)-1]
	}
	logits, vocab := g.decoder.Step(g.queue, sequences, tokens), g.model.Vocab
	for i, c := range all {
		g.queue.Read(kernels.Float32Bytes(c.slot.logits), logits.Slice(i*vocab, vocab))
	}
	return g.queue.Sync()
}
