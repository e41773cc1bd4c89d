package model

import "pnode/kernels"

// embedding is the first layer: y = wte[tokens] + wpe.
type embedding struct {
	boundary               // x and dx are absent
	tokens    kernels.View // [B,T] int32
	wte, dwte kernels.View // [V,C]
	wpe, dwpe kernels.View // [T,C]
	batch     int
	model     Config
}

func newEmbedding(b *builder, v vectors, io boundary) *embedding {
	e := &embedding{boundary: io, tokens: b.mem.ids.take(b.rows), batch: b.batch, model: b.model}
	e.wte, e.dwte = v.next()
	e.wpe, e.dwpe = v.next()
	return e
}

func (e *embedding) forward(q issuer) {
	m := e.model
	q.Do(kernels.EmbedForward(e.y, e.tokens, e.wte, e.wpe, e.batch, m.Context, m.Channels, m.Vocab))
}

// backwardInput has nothing to do: tokens have no gradient.
func (e *embedding) backwardInput(issuer) {}

func (e *embedding) backwardWeight(q issuer) {
	m := e.model
	q.Do(kernels.EmbedBackward(e.dwte, e.dwpe, e.dy, e.tokens, e.batch, m.Context, m.Channels, m.Vocab))
}

// head is the last layer: logits = ln_f(x) * wte', then the loss. The weight is the
// head's own copy of wte.
type head struct {
	boundary // y and dy are absent
	lnf      norm
	project  linear
	n, vocab int
	a        headActivations
	dnormed  kernels.View // [N,C]
}

// headActivations are kept from forward to backward.
type headActivations struct {
	normed  kernels.View // [N,C]
	logits  kernels.View // [N,V]; their gradient after loss
	losses  kernels.View // [N]
	targets kernels.View // [N] int32; negative: the row does not count
}

func newHead(b *builder, v vectors, io boundary) *head {
	n, c, vocab := b.rows, b.model.Channels, b.model.Vocab
	h := &head{boundary: io, n: n, vocab: vocab, dnormed: b.headDelta()}
	h.lnf = v.norm(&b.mem.saved, n, c)
	h.project = linear{out: vocab, in: c}
	h.project.weight, h.project.dweight = v.next()
	s := &b.mem.saved
	h.a = headActivations{
		normed: s.take(n * c), logits: s.take(n * vocab), losses: s.take(n), targets: b.mem.ids.take(n),
	}
	return h
}

// forward computes the logits; loss must follow before a backward pass.
func (h *head) forward(q issuer) {
	h.lnf.forward(q, h.a.normed, h.x, h.n)
	h.project.forward(q, h.a.logits, h.a.normed, h.n)
}

// loss computes the losses and overwrites the logits by their gradient times scale.
func (h *head) loss(q issuer, scale float32) {
	q.Do(kernels.CrossEntropy(h.a.losses, h.a.logits, h.a.targets, h.n, h.vocab, scale))
}

func (h *head) backwardInput(q issuer) {
	h.project.backwardInput(q, h.dnormed, h.a.logits, h.n)
	h.lnf.backwardInput(q, h.dx, h.dnormed, h.x, kernels.View{}, h.n)
}

func (h *head) backwardWeight(q issuer) {
	h.project.backwardWeight(q, h.a.logits, h.a.normed, h.n)
	h.lnf.backwardWeight(q, h.dnormed, h.x, h.n)
}
