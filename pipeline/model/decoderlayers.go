package model

import "pnode/kernels"

// The layers of a Decoder: the parts of the training layers, forward only, over n rows.

// decoderBlock is a block and the keys and values of the sequences in it.
type decoderBlock struct {
	cache                  kernels.View // [S,Positions,2*K*D]
	attentionNorm, mlpNorm norm
	qkv, output, up, down  linear
}

func (b *decoderBlock) forward(q issuer, d *Decoder, runs []decoderRun, n int) {
	a, m := d.a.first(n, d.cfg.Rows), d.model
	b.attentionNorm.with(a).forward(q, a.normed, a.x, n)
	b.qkv.forward(q, a.qkv, d.rounding.of(q, a.normed), n)
	eachRun(runs, func(r decoderRun, first int) { b.attend(q, d, r, first) })
	b.output.forward(q, a.branch, d.rounding.of(q, a.attended), n)
	b.mlpNorm.with(a).addForward(q, a.normed, a.x, a.x, a.branch, n)
	b.up.forward(q, a.hidden, d.rounding.of(q, a.normed), n)
	activate(q, m, a.activated, a.hidden, n)
	b.down.forward(q, a.branch, d.rounding.of(q, a.activated), n)
	q.Do(kernels.Add(a.x, a.x, a.branch, a.x.Len))
}

// attend computes the attention of a run, whose rows begin at first.
func (b *decoderBlock) attend(q issuer, d *Decoder, r decoderRun, first int) {
	m, qkv, starts := d.model, d.rowsOf(d.a.qkv, r, first), kernels.View{}
	if m.slides(d.cfg.Positions) {
		starts = d.rowsOf(d.a.starts, r, first)
	}
	d.rotary.from(r.past, r.t).turn(q, qkv, 0)
	room := b.cache.Len / d.cfg.Sequences
	shape := kernels.AttentionShape{B: r.count, T: r.t, H: m.Heads, K: m.KVHeads, D: m.HeadDim}
	cached := kernels.CachedAttentionShape{AttentionShape: shape, Past: r.past, Max: d.cfg.Positions}
	q.Do(kernels.AttentionCached(d.rowsOf(d.a.attended, r, first), b.cache.Slice(r.sequence*room, r.count*room), qkv, starts, cached))
}

// decoderHead computes the logits of some rows.
type decoderHead struct {
	norm    norm
	project linear
}

func (h *decoderHead) forward(q issuer, d *Decoder, x kernels.View, n int) {
	normed, logits := rowsOf(d.a.lastNormed, n, d.cfg.Sequences), rowsOf(d.a.lastLogits, n, d.cfg.Sequences)
	h.norm.with(d.a.first(n, d.cfg.Rows)).forward(q, normed, x, n)
	h.project.forward(q, logits, d.rounding.of(q, normed), n)
}

// first are the activations of the first n rows.
func (a decoderActivations) first(n, rows int) decoderActivations {
	for _, v := range []*kernels.View{
		&a.tokens, &a.starts, &a.x, &a.normed, &a.branch, &a.qkv, &a.attended, &a.hidden, &a.activated, &a.mean, &a.rstd,
	} {
		*v = rowsOf(*v, n, rows)
	}
	return a
}

// with is the norm with the row statistics of a pass.
func (l norm) with(a decoderActivations) norm {
	l.rstd = a.rstd
	if l.kind == LayerNorm {
		l.mean = a.mean
	}
	return l
}

// from are the positions [first, first+n).
func (r rotary) from(first, n int) rotary {
	r.shape.Start, r.shape.T = first, n
	return r
}
