package model

import "pnode/kernels"

// attention is the first branch of a block: dropout(output(attention(qkv(norm(x))))). The
// second branch adds x.
type attention struct {
	x, branch   kernels.View // [N,C]
	dx, dy      kernels.View // [N,C] dy of x + branch
	shape       kernels.AttentionShape
	starts      kernels.View // [B,T] int32, the first key each query sees; may be absent
	norm        norm
	qkv, output linear
	rotary      rotary
	dropout     dropout
	n           int      // rows B*T
	a           struct { // what is kept from forward to backward, as far as the level says
		normed   kept         // [N,C]
		qkv      kept         // [N,(H+2K)D], turned
		attended kept         // [N,H*D]
		lse      kernels.View // [B,H,T]
	}
	d struct { // gradients that the weight pass reads after the input pass
		branch kernels.View // [N,C]; absent without dropout
		qkv    kernels.View // [N,(H+2K)D]
		normed kernels.View // [N,C]
	}
	dattended kernels.View // [N,H*D] scratch, stored as what attention reads
	dotted    kernels.View // [B,H,T] scratch
}

func newAttention(b *builder, v *vectors, io boundary, at place) attention {
	n, m := b.rows, b.model
	rest := b.activations(at.level, RecomputeBlock)
	k := attention{x: io.x, branch: io.y, dx: io.dx, dy: io.dy, n: n, rotary: b.rotary, starts: b.starts}
	k.shape = kernels.AttentionShape{B: b.batch, T: m.Context, H: m.Heads, K: m.KVHeads, D: m.HeadDim}
	k.norm = v.norm(rest, n)
	k.qkv, k.output = v.attentionLinears()
	k.dropout = dropout{share: float32(m.ResidualDropout), noise: at.noise, layer: at.layer, site: siteAttention}
	k.a.normed = b.keep(at.level, RecomputeOutputs, at.desk.in, n*m.Channels)
	k.a.qkv = b.keep(at.level, RecomputeBlock, at.desk.out, n*m.qkvWidth())
	k.a.attended = b.keep(at.level, RecomputeBlock, at.desk.in, n*m.queryWidth())
	k.a.lse = rest.take(n * m.Heads)
	k.d.branch = k.dropout.room(b.deltas(), n*m.Channels)
	k.d.qkv, k.d.normed = b.deltas().take(n*m.qkvWidth()), b.deltas().take(n*m.Channels)
	k.qkv.take(b, at)
	k.output.take(b, at)
	k.dattended = b.passHalves(n * m.queryWidth())
	if b.storage == StorageF32 {
		k.dattended = b.scratch().take(n * m.queryWidth())
	}
	k.dotted = b.scratch().take(n * m.Heads)
	return k
}

func (k *attention) forward(q issuer, p stretch) {
	k.project(q, p)
	k.attend(q, p)
	p.each(func(s span) {
		k.output.from(s.first).forward(q, s.of(k.branch), k.a.attended.at(s).factor(), s.n)
		k.dropout.apply(q, k.branch, s)
	})
}

// project computes queries, keys and values.
func (k *attention) project(q issuer, p stretch) {
	p.each(func(s span) {
		k.norm.keep(q, k.a.normed, k.x, s)
		qkv := k.a.qkv.at(s)
		k.qkv.from(s.first).forward(q, qkv.wide, k.a.normed.at(s).factor(), s.n)
		k.rotary.at(s).turn(q, qkv.wide, 0)
		qkv.store(q)
	})
}

// attend lets the queries of the stretch see the keys up to their own.
func (k *attention) attend(q issuer, p stretch) {
	if p.whole() {
		q.Do(kernels.AttentionForward(k.a.attended.factor(), k.a.lse, k.a.qkv.factor(), k.starts, k.shape))
		return
	}
	q.Do(kernels.AttentionForwardPart(k.a.attended.factor(), k.a.lse, k.a.qkv.factor(), k.starts, k.part(p)))
}

func (k *attention) part(p stretch) kernels.AttentionPartShape {
	return kernels.AttentionPartShape{AttentionShape: k.shape, From: p.from, Queries: p.to - p.from}
}

func (k *attention) backwardInput(q issuer, p stretch) {
	p.each(func(s span) {
		k.output.from(s.first).backwardInput(q, s.of(k.dattended), k.dropout.gradient(q, k.d.branch, k.dy, s), s.n)
	})
	k.differentiate(q, p)
	p.each(func(s span) {
		dqkv, dnormed := s.of(k.d.qkv), s.of(k.d.normed)
		k.rotary.at(s).turn(q, dqkv, kernels.Inverse)
		k.qkv.from(s.first).backwardInput(q, dnormed, dqkv, s.n)
		k.norm.at(s).backwardInput(q, s.of(k.dx), dnormed, s.of(k.x), s.n, s.of(k.dy))
	})
}

// differentiate computes the gradients of the stretch's queries, and adds to those of the keys
// and values up to them. With that its own are complete: those behind it came before.
func (k *attention) differentiate(q issuer, p stretch) {
	qkv, attended := k.a.qkv.factor(), k.a.attended.factor()
	if p.whole() {
		q.Do(kernels.AttentionBackward(k.d.qkv, k.dotted, k.dattended, qkv, attended, k.a.lse, k.starts, k.shape))
		return
	}
	flags := kernels.Accumulate
	if p.to == p.context {
		flags = 0
	}
	q.Do(kernels.AttentionBackwardPart(k.d.qkv, k.dotted, k.dattended, qkv, attended, k.a.lse, k.starts, k.part(p), flags))
}

func (k *attention) backwardWeight(q issuer) {
	k.output.backwardWeight(q, k.dropout.gradientView(k.d.branch, k.dy), k.a.attended.factor(), k.n)
	k.qkv.backwardWeight(q, k.d.qkv, k.a.normed.factor(), k.n)
	k.norm.backwardWeight(q, k.d.normed, k.x, k.n)
}
