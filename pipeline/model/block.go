package model

import "pnode/kernels"

// block is a pre-normalised transformer block, two branches of the residual stream:
//
//	mid = x + output(attention(qkv(norm(x))))
//	y   = mid + down(activation(up(norm(mid))))
type block struct {
	level     Recompute
	attention attention
	mlp       mlp
}

func newBlock(b *builder, v vectors, io boundary, level Recompute) *block {
	mid := b.activations(level, RecomputeBlock).take(b.rows * b.model.Channels)
	d := newBlockDeltas(b)
	first := boundary{x: io.x, y: mid, dx: io.dx, dy: d.mid}
	second := boundary{x: mid, y: io.y, dx: d.mid, dy: io.dy}
	return &block{level: level, attention: newAttention(b, &v, first, level, d), mlp: newMLP(b, &v, second, level, d)}
}

func (k *block) forward(q issuer) {
	k.attention.forward(q)
	k.mlp.forward(q)
}

func (k *block) backward(q issuer) {
	k.restoreInput(q)
	k.input(q)
	if k.level == RecomputeOutputs {
		k.restoreOutputs(q)
	}
	k.weight(q)
}

func (k *block) backwardInput(q issuer) {
	k.restoreInput(q)
	k.input(q)
}

func (k *block) backwardWeight(q issuer) {
	k.restoreInput(q)
	if k.level == RecomputeOutputs {
		k.restoreOutputs(q)
	}
	k.weight(q)
}

// restoreInput computes again what the input pass reads and the level dropped, and with
// it all that the weight pass reads.
func (k *block) restoreInput(q issuer) {
	if k.level == RecomputeBlock {
		k.attention.forward(q)
		k.mlp.prepare(q)
	}
}

// restoreOutputs computes again what only the weight pass reads.
func (k *block) restoreOutputs(q issuer) {
	k.attention.normalise(q)
	k.mlp.normalise(q)
	k.mlp.activate(q)
}

func (k *block) input(q issuer) {
	k.mlp.backwardInput(q)
	k.attention.backwardInput(q)
}

func (k *block) weight(q issuer) {
	k.mlp.backwardWeight(q)
	k.attention.backwardWeight(q)
}

// blockDeltas are activation gradients that the weight pass reads after the input pass.
type blockDeltas struct {
	mid           kernels.View // [N,C] of the stream between the branches
	hidden        kernels.View // [N,F]
	mlpNorm       kernels.View // [N,C]
	qkv           kernels.View // [N,(H+2K)D]
	attentionNorm kernels.View // [N,C]
}

func newBlockDeltas(b *builder) blockDeltas {
	d, n, c := b.deltas(), b.rows, b.model.Channels
	return blockDeltas{
		mid: d.take(n * c), hidden: d.take(n * b.model.MLP), mlpNorm: d.take(n * c),
		qkv: d.take(n * b.model.qkvWidth()), attentionNorm: d.take(n * c),
	}
}
