package model

// block is a pre-normalised transformer block, two branches of the residual stream:
//
//	mid = x + dropout(output(attention(qkv(norm(x)))))
//	y   = mid + dropout(down(activation(up(norm(mid)))))
type block struct {
	level     Recompute
	attention attention
	mlp       mlp
	// Where the level is restored ahead of the backward pass, restored has the slot that it
	// was restored for; nil elsewhere.
	restored *int
	slot     int
}

// place says which block of the model it is, for which slot, and how much it keeps.
type place struct {
	layer int
	level Recompute
	noise *Noise
	desk  desk
	slot  int
	ahead bool
}

func newBlock(b *builder, v vectors, io boundary, at place) *block {
	nc := b.rows * b.model.Channels
	mid, dmid := b.activations(at.level, RecomputeBlock).take(nc), b.deltas().take(nc)
	at.desk = b.desk()
	first := boundary{x: io.x, y: mid, dx: io.dx, dy: dmid}
	second := boundary{x: mid, y: io.y, dx: dmid, dy: io.dy}
	k := &block{level: at.level, attention: newAttention(b, &v, first, at), mlp: newMLP(b, &v, second, at)}
	k.mlp.before = io.x
	if k.slot = at.slot; at.ahead {
		k.restored = b.ahead
	}
	return k
}

func (k *block) forward(q issuer) {
	k.attention.forward(q)
	k.mlp.forward(q)
}

func (k *block) backward(q issuer) {
	k.restoreInput(q)
	k.input(q)
	if k.level == RecomputeOutputs && !k.there() {
		k.restoreOutputs(q)
	}
	k.weight(q)
}

// restore computes again all that the level dropped.
func (k *block) restore(q issuer) {
	k.restoreInput(q)
	if k.level == RecomputeOutputs {
		k.restoreOutputs(q)
	}
}

// there tells whether what the level dropped has been restored.
func (k *block) there() bool { return k.restored != nil && *k.restored == k.slot }

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
	if k.level == RecomputeBlock && !k.there() {
		k.attention.forward(q)
		k.mlp.restore(q)
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
