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
	n           int // rows B*T
	a           attentionActivations
	d           attentionDeltas
	dattended   kernels.View // [N,H*D] scratch
	dotted      kernels.View // [B,H,T] scratch
}

// attentionActivations are kept from forward to backward as far as the level says.
type attentionActivations struct {
	normed   kept         // [N,C]
	qkv      kept         // [N,(H+2K)D], turned
	attended kept         // [N,H*D]
	lse      kernels.View // [B,H,T]
}

// attentionDeltas are gradients that the weight pass reads after the input pass.
type attentionDeltas struct {
	branch kernels.View // [N,C]; absent without dropout
	qkv    kernels.View // [N,(H+2K)D]
	normed kernels.View // [N,C]
}

func newAttention(b *builder, v *vectors, io boundary, at place) attention {
	n, m := b.rows, b.model
	rest := b.activations(at.level, RecomputeBlock)
	k := attention{x: io.x, branch: io.y, dx: io.dx, dy: io.dy, n: n, rotary: b.rotary, starts: b.starts}
	k.shape = kernels.AttentionShape{B: b.batch, T: m.Context, H: m.Heads, K: m.KVHeads, D: m.HeadDim}
	k.norm = v.norm(rest, n)
	k.qkv, k.output = v.attentionLinears()
	k.dropout = dropout{share: float32(m.ResidualDropout), noise: at.noise, layer: at.layer, site: siteAttention}
	k.a = attentionActivations{
		normed:   b.keep(at.level, RecomputeOutputs, at.desk.in, n*m.Channels),
		qkv:      b.keep(at.level, RecomputeBlock, at.desk.out, n*m.qkvWidth()),
		attended: b.keep(at.level, RecomputeBlock, at.desk.in, n*m.queryWidth()),
		lse:      rest.take(n * m.Heads),
	}
	k.d = attentionDeltas{
		branch: k.dropout.room(b.deltas(), n*m.Channels),
		qkv:    b.deltas().take(n * m.qkvWidth()), normed: b.deltas().take(n * m.Channels),
	}
	k.qkv.take(b, at)
	k.output.take(b, at)
	k.dattended, k.dotted = b.mem.layer.take(n*m.queryWidth()), b.mem.layer.take(n*m.Heads)
	return k
}

func (k *attention) forward(q issuer) {
	k.normalise(q)
	k.qkv.forward(q, k.a.qkv.wide, k.a.normed.factor(), k.n)
	k.rotary.forward(q, k.a.qkv.wide)
	k.a.qkv.settle(q)
	q.Do(kernels.AttentionForward(k.a.attended.wide, k.a.lse, k.a.qkv.wide, k.starts, k.shape))
	k.a.attended.store(q)
	k.output.forward(q, k.branch, k.a.attended.factor(), k.n)
	k.dropout.apply(q, k.branch)
}

func (k *attention) normalise(q issuer) {
	k.norm.forward(q, k.a.normed.wide, k.x, k.n)
	k.a.normed.store(q)
}

func (k *attention) backwardInput(q issuer) {
	k.output.backwardInput(q, k.dattended, k.dropout.gradient(q, k.d.branch, k.dy), k.n)
	k.a.qkv.load(q)
	k.a.attended.load(q)
	q.Do(kernels.AttentionBackward(k.d.qkv, k.dotted, k.dattended, k.a.qkv.wide, k.a.attended.wide, k.a.lse, k.starts, k.shape))
	k.rotary.backward(q, k.d.qkv)
	k.qkv.backwardInput(q, k.d.normed, k.d.qkv, k.n)
	k.norm.backwardInput(q, k.dx, k.d.normed, k.x, k.n, k.dy)
}

func (k *attention) backwardWeight(q issuer) {
	k.output.backwardWeight(q, k.dropout.gradientView(k.d.branch, k.dy), k.a.attended.factor(), k.n)
	k.qkv.backwardWeight(q, k.d.qkv, k.a.normed.factor(), k.n)
	k.norm.backwardWeight(q, k.d.normed, k.x, k.n)
}
