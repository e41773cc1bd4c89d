package model

import (
	"fmt"

	"pnode/kernels"
)

// SetTokens enqueues the tokens [B,T] of a slot, each in [0,V), on a stack that starts
// with the embedding. tokens must stay unchanged until the queue's Sync.
func (s *Stack) SetTokens(q kernels.Queue, slot int, tokens []int32) {
	f := s.slot(slot)
	if f.embed == nil {
		panic("model: SetTokens on a stack without the embedding")
	}
	q.Write(f.embed.tokens, kernels.Int32Bytes(tokens))
}

// SetTargets enqueues the targets [B,T] of a slot, each in [0,V) or negative for a
// position that does not count, on a stack that ends with the head. targets must stay
// unchanged until the queue's Sync.
func (s *Stack) SetTargets(q kernels.Queue, slot int, targets []int32) {
	q.Write(s.headOf(slot).targets, kernels.Int32Bytes(targets))
}

// Masked tells whether SetDocuments is due before each Forward: the stack has attention
// that StackConfig.DocumentMask keeps within documents.
func (s *Stack) Masked() bool { return s.cfg.masked() }

// SetDocuments enqueues where in its row the document of each position of a slot begins,
// [B,T], each from 0 to its own position. Queries see nothing before that. The stack must
// be Masked.
func (s *Stack) SetDocuments(q kernels.Queue, slot int, starts []int32) {
	if !s.Masked() {
		panic("model: SetDocuments on a stack that masks none")
	}
	m := s.cfg.Model
	seen := make([]int32, len(starts))
	for i, start := range starts {
		seen[i] = max(start, m.windowStart(i%m.Context))
	}
	q.Write(s.slot(slot).starts, kernels.Int32Bytes(seen))
}

// Input is the residual stream [B,T,C] that the stack before writes into a slot.
func (s *Stack) Input(slot int) kernels.View { return s.boundary(s.slot(slot).x[0]) }

// InputGrad is the gradient [B,T,C] of Input, valid after Backward or
// BackwardInputSegment.
func (s *Stack) InputGrad(slot int) kernels.View { return s.boundary(s.slot(slot).dx[0]) }

// Output is the residual stream [B,T,C] for the stack behind, valid after Forward.
func (s *Stack) Output(slot int) kernels.View { return s.boundary(last(s.slot(slot).x)) }

// OutputGrad is the gradient [B,T,C] of Output that the stack behind writes into a slot.
func (s *Stack) OutputGrad(slot int) kernels.View { return s.boundary(last(s.slot(slot).dx)) }

// Losses are the losses [B*T] in nats of a stack with the head, valid after Loss,
// Backward or BackwardInputSegment.
func (s *Stack) Losses(slot int) kernels.View { return s.headOf(slot).losses }

// Forward runs the slot's micro-batch through the layers. The noise is that of the
// backward pass too.
func (s *Stack) Forward(q kernels.Queue, slot int, noise Noise) {
	s.ForwardSegment(q, slot, Segment{}, noise)
}

// ForwardSegment is Forward for one segment: it reads its rows of Input and writes those of
// Output. All segments of a micro-batch have the same noise.
func (s *Stack) ForwardSegment(q kernels.Queue, slot int, g Segment, noise Noise) {
	f, p := s.slot(slot), s.stretch(g)
	*f.noise, *s.restored = noise, -1
	joined := residuals{issuer: q}
	for _, l := range f.layers {
		l.forward(&joined, p)
	}
	joined.end()
}

// Rows are the rows of a segment in a boundary tensor [B,T,C], a view for each sequence, or one
// of all.
func (s *Stack) Rows(v kernels.View, g Segment) (rows []kernels.View) {
	s.stretch(g).each(func(part span) { rows = append(rows, part.of(v)) })
	return rows
}

// Restore computes again what the last Ahead layers dropped of a slot's segment, for its
// Backward or BackwardInputSegment to come: while its OutputGrad is waited for. Passes of another
// slot between the two make it of no use.
func (s *Stack) Restore(q kernels.Queue, slot int, g Segment) {
	layers, p := s.slot(slot).layers, s.stretch(g)
	*s.restored = -1
	for i, l := range layers {
		if k, ok := l.(*block); ok && s.cfg.ahead(i) {
			k.restore(q, p)
		}
	}
	*s.restored = slot
}

// Loss computes the losses after Forward where no backward pass follows, on a stack with
// the head.
func (s *Stack) Loss(q kernels.Queue, slot int) { s.headOf(slot).loss(q) }

// LogitRows is how many rows of logits a stack with the head computes at a time.
func (s *Stack) LogitRows() int { return s.headOf(0).chunk }

// Logits computes, after Forward on a stack with the head, the logits [n,V] of rows
// [first, first+n) of [B,T], n at most LogitRows. They are valid until the next call that
// names the stack. Attention is causal, so a shorter sequence is padded at its end with
// any token.
func (s *Stack) Logits(q kernels.Queue, slot, first, n int) kernels.View {
	return s.headOf(slot).rows(q, first, n)
}

// Backward runs the slot's micro-batch back through the layers: it adds the gradient of
// scale times the losses' sum to the parameters' gradients, which a step ends with Unscale, and
// computes InputGrad and, with the head, Losses. Elsewhere scale has no effect, but OutputGrad must
// be there; F16 storage uses it up.
func (s *Stack) Backward(q kernels.Queue, slot int, scale float32) {
	s.BackwardEach(q, slot, scale, func(int) {})
}

// BackwardEach is Backward that tells of each layer, from the last one on, when what adds the
// micro-batch to its gradients has been enqueued.
func (s *Stack) BackwardEach(q kernels.Queue, slot int, scale float32, done func(layer int)) {
	f := s.scaled(slot, scale)
	s.enter(q, f, s.all)
	for i := len(f.layers) - 1; i >= 0; i-- {
		f.layers[i].backward(q)
		done(s.cfg.First + i)
	}
	s.leave(q, f, s.all)
	*s.restored = -1
}

// BackwardInputSegment is the part of Backward that the stack before waits for, for one segment:
// it reads its rows of OutputGrad, writes those of InputGrad, and of Losses, and leaves the
// parameters' gradients alone. Needs SplitBackward.
func (s *Stack) BackwardInputSegment(q kernels.Queue, slot int, g Segment, scale float32) {
	s.mustSplit()
	f, p := s.scaled(slot, scale), s.stretch(g)
	s.enter(q, f, p)
	for i := len(f.layers) - 1; i >= 0; i-- {
		f.layers[i].backwardInput(q, p)
	}
	s.leave(q, f, p)
	*s.restored = -1
}

// BackwardWeight is the rest of Backward, any time after BackwardInputSegment and before the
// slot's next Forward. It tells of each layer as BackwardEach does. Needs SplitBackward.
func (s *Stack) BackwardWeight(q kernels.Queue, slot int, done func(layer int)) {
	s.mustSplit()
	*s.restored = -1
	layers := s.slot(slot).layers
	for i := len(layers) - 1; i >= 0; i-- {
		layers[i].backwardWeight(q)
		done(s.cfg.First + i)
	}
}

// ZeroGrads enqueues setting the gradients of all layers to zero.
func (s *Stack) ZeroGrads(q kernels.Queue) {
	for _, r := range s.mem.grads.regions {
		if r.buf != nil { // else all is frozen
			q.Do(kernels.Fill(kernels.Whole(r.buf), r.peak, 0))
		}
	}
}

func (s *Stack) slot(i int) *slotState {
	if i < 0 || i >= len(s.slots) {
		panic(fmt.Sprintf("model: slot %d of %d", i, len(s.slots)))
	}
	return &s.slots[i]
}

// scaled is the slot with the scale of its losses noted for both parts of the pass.
func (s *Stack) scaled(slot int, scale float32) *slotState {
	if s.cfg.ForwardOnly {
		panic("model: the stack was made with ForwardOnly")
	}
	f := s.slot(slot)
	if f.head != nil {
		f.head.scale = scale * s.scale()
	}
	return f
}

// stretch is what a pass over a segment takes.
func (s *Stack) stretch(g Segment) stretch {
	if g.Count > 1 && (g.Count != s.cfg.Segments || g.Index < 0 || g.Index >= g.Count) {
		panic(fmt.Sprintf("model: segment %d of %d on a stack for %d", g.Index, g.Count, s.cfg.Segments))
	}
	return s.all.of(g)
}

func (s *Stack) mustSplit() {
	if !s.cfg.SplitBackward {
		panic("model: the stack was made without SplitBackward")
	}
}

func (s *Stack) headOf(slot int) *head {
	h := s.slot(slot).head
	if h == nil {
		panic("model: the stack does not hold the head")
	}
	return h
}

func (s *Stack) boundary(v kernels.View) kernels.View {
	if !v.Present() {
		panic(fmt.Sprintf("model: layers [%d,%d) have no boundary there", s.cfg.First, s.cfg.End))
	}
	return v
}

func last(v []kernels.View) kernels.View { return v[len(v)-1] }
