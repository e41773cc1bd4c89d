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
	q.Write(s.headOf(slot).a.targets, kernels.Int32Bytes(targets))
}

// Input is the residual stream [B,T,C] that the stack before writes into a slot.
func (s *Stack) Input(slot int) kernels.View { return s.boundary(s.slot(slot).x[0]) }

// InputGrad is the gradient [B,T,C] of Input, valid after Backward or BackwardInput.
func (s *Stack) InputGrad(slot int) kernels.View { return s.boundary(s.slot(slot).dx[0]) }

// Output is the residual stream [B,T,C] for the stack behind, valid after Forward.
func (s *Stack) Output(slot int) kernels.View { return s.boundary(last(s.slot(slot).x)) }

// OutputGrad is the gradient [B,T,C] of Output that the stack behind writes into a slot.
func (s *Stack) OutputGrad(slot int) kernels.View { return s.boundary(last(s.slot(slot).dx)) }

// Losses are the losses [B*T] in nats, valid after Forward on a stack with the head.
func (s *Stack) Losses(slot int) kernels.View { return s.headOf(slot).a.losses }

// Forward runs the slot's micro-batch through the layers. With the head it also computes
// the losses and the gradient of scale times their sum; elsewhere scale has no effect.
func (s *Stack) Forward(q kernels.Queue, slot int, scale float32) {
	f := s.forward(q, slot)
	if f.head != nil {
		f.head.loss(q, scale)
	}
}

// ForwardLogits runs the layers without the loss and gives the logits [B,T,V] of a stack
// with the head, valid until the slot's next forward pass. Attention is causal, so a
// shorter sequence is padded at its end with any token. No backward pass may follow.
func (s *Stack) ForwardLogits(q kernels.Queue, slot int) kernels.View {
	logits := s.headOf(slot).a.logits
	s.forward(q, slot)
	return logits
}

func (s *Stack) forward(q kernels.Queue, slot int) *slotState {
	f := s.slot(slot)
	for _, l := range f.layers {
		l.forward(q)
	}
	return f
}

// Backward runs the slot's micro-batch back through the layers: it adds to the
// parameters' gradients and computes InputGrad. OutputGrad must be there.
func (s *Stack) Backward(q kernels.Queue, slot int) {
	layers := s.slot(slot).layers
	for i := len(layers) - 1; i >= 0; i-- {
		layers[i].backwardInput(q)
		layers[i].backwardWeight(q)
	}
}

// BackwardInput is the part of Backward that the stack before waits for: it computes
// InputGrad and leaves the parameters' gradients alone. Needs SplitBackward.
func (s *Stack) BackwardInput(q kernels.Queue, slot int) {
	layers := s.split(slot)
	for i := len(layers) - 1; i >= 0; i-- {
		layers[i].backwardInput(q)
	}
}

// BackwardWeight is the rest of Backward, any time after BackwardInput and before the
// slot's next Forward. Needs SplitBackward.
func (s *Stack) BackwardWeight(q kernels.Queue, slot int) {
	layers := s.split(slot)
	for i := len(layers) - 1; i >= 0; i-- {
		layers[i].backwardWeight(q)
	}
}

// ZeroGrads enqueues setting the gradients of all layers to zero.
func (s *Stack) ZeroGrads(q kernels.Queue) {
	grads := kernels.Whole(s.mem.grads.buf)
	q.Do(kernels.Fill(grads, grads.Len, 0))
}

func (s *Stack) slot(i int) *slotState {
	if i < 0 || i >= len(s.slots) {
		panic(fmt.Sprintf("model: slot %d of %d", i, len(s.slots)))
	}
	return &s.slots[i]
}

func (s *Stack) split(slot int) []layer {
	if !s.cfg.SplitBackward {
		panic("model: the stack was made without SplitBackward")
	}
	return s.slot(slot).layers
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
