package model

import (
	"cmp"

	"pnode/kernels"
)

// head is the last layer, the classifier: logits = norm(x) * weight', then the loss. The
// weight is the head's own, or its copy of the embedding's.
//
// Logits are by far the widest tensor of a model: 206 MB a sequence for GPT-2's 50257
// tokens and 1024 positions. So the head keeps none. A backward pass takes the rows in
// chunks: the chunk's logits become losses and gradients in place, and both products of
// the gradient follow at once, while one buffer of the stack, shared by all slots, holds
// it. The forward pass of training does nothing, because a backward pass on the same
// device follows; loss is the forward pass of an evaluation.
//
// The price is paid by a split backward pass only: the weight pass computes the chunk's
// logits and their gradient again, one of four products more, instead of keeping them.
type head struct {
	boundary // y and dy are absent
	norm     norm
	project  linear
	n, vocab int
	chunk    int     // rows
	scale    float32 // of the losses' sum, set by the backward pass
	targets  kernels.View
	losses   kernels.View // [N]
	logits   kernels.View // [chunk,V]
	normed   kept         // [N,C]; in its pass only: cheap to compute again
	dnormed  kernels.View // [N,C]
}

// The logits' buffer has at most maxLogits elements, but at least one block of
// logitBlock rows: less would make the products narrow, and the gradient of a weight as
// large as the embedding is read and written once for each chunk.
const (
	logitBlock = 256
	maxLogits  = 1 << 25
)

func newHead(b *builder, v vectors, io boundary) *head {
	n, c := b.rows, b.model.Channels
	chunk := cmp.Or(b.logits, max(1, maxLogits/b.model.Vocab/logitBlock)*logitBlock)
	h := &head{
		boundary: io, n: n, vocab: b.model.Vocab, chunk: min(chunk, n),
		targets: b.mem.ids.take(n), losses: b.mem.saved.take(n),
		dnormed: b.deltas().take(n * c),
	}
	h.normed = kept{wide: b.mem.layer.take(n * c), half: b.passHalves(n * c)}
	h.logits = b.mem.layer.take(h.chunk * h.vocab)
	h.norm = v.norm(&b.mem.saved, n)
	h.project = v.linear(linearShape{out: h.vocab, in: c, parts: 1})
	h.project.take(b, place{level: RecomputeBlock, desk: desk{gradient: rounding{b.passHalves(h.chunk * h.vocab)}}})
	return h
}

func (h *head) forward(issuer, stretch) {}

// all are the rows of the micro-batch.
func (h *head) all() span { return span{n: h.n, all: h.n} }

// loss computes the losses alone.
func (h *head) loss(q issuer) {
	h.norm.keep(q, h.normed, h.x, h.all())
	h.eachChunk(h.all(), func(c logitChunk) { h.gradient(q, c, 0) })
}

func (h *head) backward(q issuer) {
	h.norm.keep(q, h.normed, h.x, h.all())
	h.eachChunk(h.all(), func(c logitChunk) {
		h.gradient(q, c, h.scale)
		h.project.from(c.first).backwardInput(q, c.of(h.dnormed), c.logits, c.n)
		h.project.from(c.first).backwardWeight(q, c.logits, c.of(h.normed.factor()), c.n)
	})
	h.norm.backwardInput(q, h.dx, h.dnormed, h.x, h.n, kernels.View{})
	h.norm.backwardWeight(q, h.dnormed, h.x, h.n)
}

func (h *head) backwardInput(q issuer, p stretch) {
	p.each(func(s span) {
		h.norm.keep(q, h.normed, h.x, s)
		h.eachChunk(s, func(c logitChunk) {
			h.gradient(q, c, h.scale)
			h.project.from(c.first).backwardInput(q, c.of(h.dnormed), c.logits, c.n)
		})
		h.norm.at(s).backwardInput(q, s.of(h.dx), s.of(h.dnormed), s.of(h.x), s.n, kernels.View{})
	})
}

func (h *head) backwardWeight(q issuer) {
	if h.project.dweight.Len == 0 && len(h.project.adapters) == 0 { // frozen
		return
	}
	h.norm.keep(q, h.normed, h.x, h.all())
	h.eachChunk(h.all(), func(c logitChunk) {
		h.gradient(q, c, h.scale)
		h.project.from(c.first).backwardWeight(q, c.logits, c.of(h.normed.factor()), c.n)
	})
	h.norm.backwardWeight(q, h.dnormed, h.x, h.n)
}

// logitChunk are rows of a micro-batch and their logits.
type logitChunk struct {
	span
	logits kernels.View // [n,V]
}

func (h *head) chunkAt(first, n int) logitChunk {
	return logitChunk{span: span{first: first, n: n, all: h.n}, logits: h.logits.Slice(0, n*h.vocab)}
}

// eachChunk calls f for the rows of a span.
func (h *head) eachChunk(s span, f func(logitChunk)) {
	for end := s.first + s.n; s.first < end; s.first += h.chunk {
		f(h.chunkAt(s.first, min(h.chunk, end-s.first)))
	}
}

// gradient computes the chunk's losses, and in its logits their gradient times scale.
func (h *head) gradient(q issuer, c logitChunk, scale float32) {
	h.project.from(c.first).forward(q, c.logits, c.of(h.normed.factor()), c.n)
	q.Do(kernels.CrossEntropy(c.of(h.losses), c.logits, c.of(h.targets), c.n, h.vocab, scale))
}

// rows computes the logits of rows [first, first+n) alone, n at most the chunk.
func (h *head) rows(q issuer, first, n int) kernels.View {
	c := h.chunkAt(first, n)
	h.norm.keep(q, h.normed, h.x, h.all())
	h.project.from(first).forward(q, c.logits, c.of(h.normed.factor()), n)
	return c.logits
}
