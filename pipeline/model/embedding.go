package model

import "pnode/kernels"

// embedding is the first layer: y = dropout(wte[tokens] + wpe).
type embedding struct {
	boundary               // x and dx are absent
	tokens    kernels.View // [B,T] int32
	wte, dwte kernels.View // [V,C]
	wpe, dwpe kernels.View // [T,C]; absent unless positions are learned
	dropout   dropout
	dembedded kernels.View // [N,C] scratch; absent without dropout
	batch     int
	model     resolved
}

func newEmbedding(b *builder, v vectors, io boundary, at place) *embedding {
	e := &embedding{boundary: io, tokens: b.mem.ids.take(b.rows), batch: b.batch, model: b.model}
	e.wte, e.dwte = v.nextFactor(1)
	if b.model.Positions == Learned {
		e.wpe, e.dwpe = v.next()
	}
	e.dropout = dropout{share: float32(b.model.EmbedDropout), noise: at.noise, layer: at.layer, site: siteEmbedding}
	e.dembedded = e.dropout.room(b.scratch(), b.rows*b.model.Channels)
	return e
}

func (e *embedding) forward(q issuer, p stretch) {
	m := e.model
	p.each(func(s span) {
		first, n := s.position(m.Context)
		wpe := e.wpe
		if wpe.Len > 0 {
			wpe = wpe.Slice(first*m.Channels, wpe.Len-first*m.Channels)
		}
		q.Do(kernels.EmbedForward(s.of(e.y), s.of(e.tokens), e.wte, wpe, s.n/n, n, m.Channels, m.Vocab))
		e.dropout.apply(q, e.y, s)
	})
}

func (e *embedding) backward(q issuer) { e.backwardWeight(q) }

// backwardInput has nothing to do: tokens have no gradient.
func (e *embedding) backwardInput(issuer, stretch) {}

func (e *embedding) backwardWeight(q issuer) {
	if e.dwte.Len == 0 { // frozen
		return
	}
	m := e.model
	rows := e.batch * m.Context
	dy := e.dropout.gradient(q, e.dembedded, e.dy, span{n: rows, all: rows})
	q.Do(kernels.EmbedBackward(e.dwte, e.dwpe, dy, e.tokens, e.batch, m.Context, m.Channels, m.Vocab))
}
