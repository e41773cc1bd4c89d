package model

import "pnode/kernels"

// attention is the first branch of a block, y = x + output(attention(qkv(norm(x)))).
type attention struct {
	boundary
	shape       kernels.AttentionShape
	norm        norm
	qkv, output linear
	n           int // rows B*T
	a           attentionActivations
	dqkv        kernels.View // [N,(H+2K)D]
	dnormed     kernels.View // [N,C]
	dattended   kernels.View // [N,H*D]
	dotted      kernels.View // [B,H,T] scratch
}

// attentionActivations are kept from forward to backward as far as the level says.
type attentionActivations struct {
	normed   kernels.View // [N,C]
	qkv      kernels.View // [N,(H+2K)D]
	attended kernels.View // [N,H*D]
	lse      kernels.View // [B,H,T]
}

func newAttention(b *builder, v *vectors, io boundary, level Recompute, d blockDeltas) attention {
	n, m := b.rows, b.model
	k := attention{boundary: io, n: n, dqkv: d.qkv, dnormed: d.attentionNorm}
	outputs, rest := b.activations(level, RecomputeOutputs), b.activations(level, RecomputeBlock)
	k.norm = v.norm(rest, n, m.Channels)
	k.qkv = v.linear(linearShape{out: m.qkvWidth(), in: m.Channels, parts: len(m.names().qkv), bias: !m.NoQKVBias})
	k.output = v.linear(linearShape{out: m.Channels, in: m.queryWidth(), parts: 1, bias: !m.NoOutputBias})
	k.a = attentionActivations{
		normed: outputs.take(n * m.Channels), qkv: rest.take(n * m.qkvWidth()),
		attended: rest.take(n * m.queryWidth()), lse: rest.take(n * m.Heads),
	}
	k.shape = kernels.AttentionShape{B: b.batch, T: m.Context, H: m.Heads, K: m.KVHeads, D: m.HeadDim}
	k.dattended, k.dotted = b.mem.layer.take(n*m.queryWidth()), b.mem.layer.take(n*m.Heads)
	return k
}

func (k *attention) forward(q issuer) {
	k.normalise(q)
	k.qkv.forward(q, k.a.qkv, k.a.normed, k.n)
	q.Do(kernels.AttentionForward(k.a.attended, k.a.lse, k.a.qkv, kernels.View{}, k.shape))
	k.output.forward(q, k.y, k.a.attended, k.n)
	q.Do(kernels.Add(k.y, k.x, k.y, k.y.Len))
}

func (k *attention) normalise(q issuer) { k.norm.forward(q, k.a.normed, k.x, k.n) }

func (k *attention) backwardInput(q issuer) {
	k.output.backwardInput(q, k.dattended, k.dy, k.n)
	q.Do(kernels.AttentionBackward(k.dqkv, k.dotted, k.dattended, k.a.qkv, k.a.attended, k.a.lse, kernels.View{}, k.shape))
	k.qkv.backwardInput(q, k.dnormed, k.dqkv, k.n)
	k.norm.backwardInput(q, k.dx, k.dnormed, k.x, k.n, k.dy)
}

func (k *attention) backwardWeight(q issuer) {
	k.output.backwardWeight(q, k.dy, k.a.attended, k.n)
	k.qkv.backwardWeight(q, k.dqkv, k.a.normed, k.n)
	k.norm.backwardWeight(q, k.dnormed, k.x, k.n)
}
