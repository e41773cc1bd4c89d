package model

import "pnode/kernels"

// mlp is the second branch of a block, y = x + down(gelu(up(norm(x)))).
type mlp struct {
	boundary
	norm     norm
	up, down linear
	n        int // rows B*T
	a        mlpActivations
	dhidden  kernels.View // [N,F]
	dnormed  kernels.View // [N,C]
}

// mlpActivations are kept from forward to backward as far as the level says.
type mlpActivations struct {
	normed    kernels.View // [N,C]
	hidden    kernels.View // [N,F]
	activated kernels.View // [N,F]
}

func newMLP(b *builder, v *vectors, io boundary, level Recompute, d blockDeltas) mlp {
	n, m := b.rows, b.model
	k := mlp{boundary: io, n: n, dhidden: d.hidden, dnormed: d.mlpNorm}
	outputs, rest := b.activations(level, RecomputeOutputs), b.activations(level, RecomputeBlock)
	k.norm = v.norm(rest, n, m.Channels)
	k.up = v.linear(linearShape{out: m.MLP, in: m.Channels, parts: 1, bias: !m.NoMLPBias})
	k.down = v.linear(linearShape{out: m.Channels, in: m.MLP, parts: 1, bias: !m.NoMLPBias})
	k.a = mlpActivations{normed: outputs.take(n * m.Channels), hidden: rest.take(n * m.MLP), activated: outputs.take(n * m.MLP)}
	return k
}

func (k *mlp) forward(q issuer) {
	k.prepare(q)
	k.down.forward(q, k.y, k.a.activated, k.n)
	q.Do(kernels.Add(k.y, k.x, k.y, k.y.Len))
}

// prepare is forward without the branch's result.
func (k *mlp) prepare(q issuer) {
	k.normalise(q)
	k.up.forward(q, k.a.hidden, k.a.normed, k.n)
	k.activate(q)
}

func (k *mlp) normalise(q issuer) { k.norm.forward(q, k.a.normed, k.x, k.n) }

func (k *mlp) activate(q issuer) {
	q.Do(kernels.GELUForward(k.a.activated, k.a.hidden, k.a.hidden.Len))
}

func (k *mlp) backwardInput(q issuer) {
	k.down.backwardInput(q, k.dhidden, k.dy, k.n)
	q.Do(kernels.GELUBackward(k.dhidden, k.dhidden, k.a.hidden, k.dhidden.Len))
	k.up.backwardInput(q, k.dnormed, k.dhidden, k.n)
	k.norm.backwardInput(q, k.dx, k.dnormed, k.x, k.n, k.dy)
}

func (k *mlp) backwardWeight(q issuer) {
	k.down.backwardWeight(q, k.dy, k.a.activated, k.n)
	k.up.backwardWeight(q, k.dhidden, k.a.normed, k.n)
	k.norm.backwardWeight(q, k.dnormed, k.x, k.n)
}
