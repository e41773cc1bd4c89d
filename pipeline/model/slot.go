package model

import (
	"fmt"

	"pnode/kernels"
)

// Slot is one micro-batch in flight through a stack: its activations, and the passes over them.
// Its methods enqueue on the caller's queue and never wait. A boundary or a head that the stack
// does not have is a broken invariant and panics.
type Slot struct {
	cfg      StackConfig
	index    int
	all      stretch // what a pass over whole sequences takes
	restored *int    // the slot of the stack that Restore was last for, -1: none
	layers   []layer
	embed    *embedding     // nil unless the stack starts with the embedding
	head     *head          // nil unless the stack ends with the head
	x, dx    []kernels.View // [N,C] residual stream and gradient in front of local layer k; k = len(layers): behind the last
	starts   kernels.View   // [B,T] int32, the first position that each one sees; may be absent
	noise    *Noise
	sizes    []slotBytes // by local layer
}

// slotBytes is the memory that one layer takes for a slot.
type slotBytes struct {
	saved int64 // from forward to backward
	pass  int64 // shared with the passes of other layers
	half  int64 // the part of pass in halves
}

// SetTokens enqueues the slot's tokens [B,T], each in [0,V), on a stack that starts with the
// embedding. tokens must stay unchanged until the queue's Sync.
func (s *Slot) SetTokens(q kernels.Queue, tokens []int32) {
	if s.embed == nil {
		panic("model: SetTokens on a stack without the embedding")
	}
	q.Write(s.embed.tokens, kernels.Int32Bytes(tokens))
}

// SetTargets enqueues the slot's targets [B,T] on a stack that ends with the head. Each is in
// [0,V), or negative for a position that does not count. targets must stay unchanged until the
// queue's Sync.
func (s *Slot) SetTargets(q kernels.Queue, targets []int32) {
	q.Write(s.mustHead().targets, kernels.Int32Bytes(targets))
}

// SetDocuments enqueues where in its row the document of each position begins, [B,T], each from 0
// to its own position. Queries see nothing before that. The stack must be Masked.
func (s *Slot) SetDocuments(q kernels.Queue, starts []int32) {
	if !s.cfg.masked() {
		panic("model: SetDocuments on a stack that masks none")
	}
	m := s.cfg.Model.resolved()
	seen := make([]int32, len(starts))
	for i, start := range starts {
		seen[i] = max(start, m.windowStart(i%m.Context))
	}
	q.Write(s.starts, kernels.Int32Bytes(seen))
}

// Input is the residual stream [B,T,C] that the previous stack writes into the slot.
func (s *Slot) Input() kernels.View { return s.boundary(s.x[0]) }

// InputGrad is the gradient [B,T,C] of Input, valid after Backward or BackwardInputSegment.
func (s *Slot) InputGrad() kernels.View { return s.boundary(s.dx[0]) }

// Output is the residual stream [B,T,C] for the next stack, valid after Forward.
func (s *Slot) Output() kernels.View { return s.boundary(last(s.x)) }

// OutputGrad is the gradient [B,T,C] of Output that the next stack writes into the slot.
func (s *Slot) OutputGrad() kernels.View { return s.boundary(last(s.dx)) }

// Losses are the losses [B*T] in nats of a stack with the head, valid after Loss, Backward or
// BackwardInputSegment.
func (s *Slot) Losses() kernels.View { return s.mustHead().losses }

// Forward runs the micro-batch through the layers. The backward pass uses the same noise.
func (s *Slot) Forward(q kernels.Queue, noise Noise) { s.ForwardSegment(q, Segment{}, noise) }

// ForwardSegment is Forward for one segment: it reads its rows of Input and writes those of
// Output. All segments of a micro-batch have the same noise.
func (s *Slot) ForwardSegment(q kernels.Queue, g Segment, noise Noise) {
	p := s.stretch(g)
	*s.noise, *s.restored = noise, -1
	joined := residuals{issuer: q}
	for _, l := range s.layers {
		l.forward(&joined, p)
	}
	joined.end()
}

// Restore recomputes what the last Ahead layers dropped of a segment, while its OutputGrad is
// on its way. Backward or BackwardInputSegment of the slot uses the result, unless passes of another
// slot came in between.
func (s *Slot) Restore(q kernels.Queue, g Segment) {
	p := s.stretch(g)
	*s.restored = -1
	for i, l := range s.layers {
		if k, ok := l.(*block); ok && s.cfg.ahead(i) {
			k.restore(q, p)
		}
	}
	*s.restored = s.index
}

// Loss computes the losses after Forward where no backward pass follows, on a stack with the head.
func (s *Slot) Loss(q kernels.Queue) { s.mustHead().loss(q) }

// Logits computes, after Forward on a stack with the head, the logits [n,V] of rows
// [first, first+n) of [B,T], n at most the stack's LogitRows. They are valid until the stack's next
// call. Attention is causal, so a shorter sequence is padded at its end with any token.
func (s *Slot) Logits(q kernels.Queue, first, n int) kernels.View {
	return s.mustHead().rows(q, first, n)
}

// Backward runs the micro-batch back through the layers: it adds the gradient of scale times the
// losses' sum to the parameters' gradients, which a step ends with Unscale, and computes InputGrad
// and, with the head, Losses. Without the head scale has no effect, but OutputGrad must be there;
// F16 storage overwrites it.
func (s *Slot) Backward(q kernels.Queue, scale float32) {
	s.BackwardEach(q, scale, func(int) {})
}

// BackwardEach is Backward that calls done with each layer's global index, from the last layer on,
// when what adds the micro-batch to its gradients has been enqueued.
func (s *Slot) BackwardEach(q kernels.Queue, scale float32, done func(layer int)) {
	s.begin(scale)
	s.rescale(q, last(s.dx), s.all, s.cfg.scale())
	for i := len(s.layers) - 1; i >= 0; i-- {
		s.layers[i].backward(q)
		done(s.cfg.First + i)
	}
	s.rescale(q, s.dx[0], s.all, 1/s.cfg.scale())
	*s.restored = -1
}

// BackwardInputSegment is the part of Backward that the previous stack waits for, for one segment:
// it reads its rows of OutputGrad, writes those of InputGrad and of Losses, and leaves the
// parameters' gradients alone. Needs SplitBackward.
func (s *Slot) BackwardInputSegment(q kernels.Queue, g Segment, scale float32) {
	s.mustSplit()
	s.begin(scale)
	p := s.stretch(g)
	s.rescale(q, last(s.dx), p, s.cfg.scale())
	for i := len(s.layers) - 1; i >= 0; i-- {
		s.layers[i].backwardInput(q, p)
	}
	s.rescale(q, s.dx[0], p, 1/s.cfg.scale())
	*s.restored = -1
}

// BackwardWeight is the rest of Backward, any time after BackwardInputSegment and before the slot's
// next Forward. It calls done as BackwardEach does. Needs SplitBackward.
func (s *Slot) BackwardWeight(q kernels.Queue, done func(layer int)) {
	s.mustSplit()
	*s.restored = -1
	for i := len(s.layers) - 1; i >= 0; i-- {
		s.layers[i].backwardWeight(q)
		done(s.cfg.First + i)
	}
}

// begin notes the scale of the losses for both parts of a backward pass.
func (s *Slot) begin(scale float32) {
	if s.cfg.ForwardOnly {
		panic("model: the stack was made with ForwardOnly")
	}
	if s.head != nil {
		s.head.scale = scale * s.cfg.scale()
	}
}

// stretch returns the positions that a pass over a segment takes.
func (s *Slot) stretch(g Segment) stretch {
	if g.Count > 1 && (g.Count != s.cfg.Segments || g.Index < 0 || g.Index >= g.Count) {
		panic(fmt.Sprintf("model: segment %d of %d on a stack for %d", g.Index, g.Count, s.cfg.Segments))
	}
	return s.all.of(g)
}

func (s *Slot) mustSplit() {
	if !s.cfg.SplitBackward {
		panic("model: the stack was made without SplitBackward")
	}
}

func (s *Slot) mustHead() *head {
	if s.head == nil {
		panic("model: the stack does not hold the head")
	}
	return s.head
}

func (s *Slot) boundary(v kernels.View) kernels.View {
	if !v.Present() {
		panic(fmt.Sprintf("model: layers %s have no boundary there", s.cfg.layers()))
	}
	return v
}

func last(v []kernels.View) kernels.View { return v[len(v)-1] }
