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

func (e *embedding) backward(q issuer) { e.backwardWeight(q) }

// backwardInput has nothing to do: tokens have no gradient.
func (e *embedding) backwardInput(issuer) {}

func (e *embedding) backwardWeight(q issuer) {
	m := e.model
	q.Do(kernels.EmbedBackward(e.dwte, e.dwpe, e.dy, e.tokens, e.batch, m.Context, m.Channels, m.Vocab))
}
