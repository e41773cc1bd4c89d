package model

import "pnode/kernels"

// The layers of a Decoder: the parts of the training layers, forward only, over n rows.

// decoderBlock is a block and the keys and values of the sequence in it.
type decoderBlock struct {
	cache                  kernels.View // [Positions,2*K*D]
	attentionNorm, mlpNorm norm
	qkv, output, up, down  linear
}

func (b *decoderBlock) forward(q issuer, d *Decoder, n int) {
	a, m := d.a.first(n, d.cfg.Rows), d.model
	if !m.slides(d.cfg.Positions) {
		a.starts = kernels.View{}
	}
	shape := kernels.AttentionShape{B: 1, T: n, H: m.Heads, K: m.KVHeads, D: m.HeadDim}
	b.attentionNorm.with(a).forward(q, a.normed, a.x, n)
	b.qkv.forward(q, a.qkv, d.rounding.of(q, a.normed), n)
	d.rotary.from(d.length, n).turn(q, a.qkv, 0)
	cached := kernels.CachedAttentionShape{AttentionShape: shape, Past: d.length, Max: d.cfg.Positions}
	q.Do(kernels.AttentionCached(a.attended, b.cache, a.qkv, a.starts, cached))
	b.output.forward(q, a.branch, d.rounding.of(q, a.attended), n)
	b.mlpNorm.with(a).addForward(q, a.normed, a.x, a.x, a.branch, n)
	b.up.forward(q, a.hidden, d.rounding.of(q, a.normed), n)
	activate(q, m, a.activated, a.hidden, n)
	b.down.forward(q, a.branch, d.rounding.of(q, a.activated), n)
	q.Do(kernels.Add(a.x, a.x, a.branch, a.x.Len))
}

// decoderHead computes the logits of one row.
type decoderHead struct {
	norm    norm
	project linear
}

func (h *decoderHead) forward(q issuer, d *Decoder, x kernels.View) {
	h.norm.with(d.a.first(1, d.cfg.Rows)).forward(q, d.a.lastNormed, x, 1)
	h.project.forward(q, d.a.lastLogits, d.rounding.of(q, d.a.lastNormed), 1)
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
