package model

// block is a pre-normalised transformer block, two branches of the residual stream:
//
//	mid = x + dropout(output(attention(qkv(norm(x)))))
//	y   = mid + dropout(down(activation(up(norm(mid)))))
type block struct {
	level     Recompute
	attention attention
	mlp       mlp
	all       stretch
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
	if m := b.model; b.storage != StorageF32 {
		in, out := max(m.Channels, m.queryWidth(), m.MLP), max(m.qkvWidth(), m.upWidth())
		at.desk = desk{
			in: b.mem.layer.take(b.rows * in), out: b.mem.layer.take(b.rows * out),
			gradient: rounding{b.passHalves(b.rows * max(m.Channels, out))},
		}
	}
	first := boundary{x: io.x, y: mid, dx: io.dx, dy: dmid}
	second := boundary{x: mid, y: io.y, dx: dmid, dy: io.dy}
	k := &block{level: at.level, attention: newAttention(b, &v, first, at), mlp: newMLP(b, &v, second, at), all: b.whole()}
	k.mlp.before = io.x
	if k.slot = at.slot; at.ahead {
		k.restored = b.ahead
	}
	return k
}

func (k *block) forward(q issuer, p stretch) {
	k.attend(q, p)
	k.mlp.forward(q, p)
}

// attend is the attention's forward. Where the level drops keys and values, those before the
// stretch are computed again: other layers have been in their room.
func (k *block) attend(q issuer, p stretch) {
	if k.level == RecomputeBlock {
		k.attention.project(q, stretch{batch: p.batch, context: p.context, to: p.from})
	}
	k.attention.forward(q, p)
}

func (k *block) backward(q issuer) {
	k.backwardInput(q, k.all)
	if k.level == RecomputeOutputs && !k.there() {
		k.restoreOutputs(q, k.all)
	}
	k.weight(q)
}

// restore computes again all that the level dropped of a stretch.
func (k *block) restore(q issuer, p stretch) {
	k.restoreInput(q, p)
	if k.level == RecomputeOutputs {
		k.restoreOutputs(q, p)
	}
}

// there reports whether what the level dropped has been restored.
func (k *block) there() bool { return k.restored != nil && *k.restored == k.slot }

func (k *block) backwardInput(q issuer, p stretch) {
	k.restoreInput(q, p)
	k.mlp.backwardInput(q, p)
	k.attention.backwardInput(q, p)
}

func (k *block) backwardWeight(q issuer) {
	k.restore(q, k.all)
	k.weight(q)
}

// restoreInput computes again what the input pass reads of a stretch and the level dropped;
// with the whole all that the weight pass reads.
func (k *block) restoreInput(q issuer, p stretch) {
	if k.level == RecomputeBlock && !k.there() {
		k.attend(q, p)
		k.mlp.restore(q, p)
	}
}

// restoreOutputs computes again what only the weight pass reads.
func (k *block) restoreOutputs(q issuer, p stretch) {
	p.each(func(s span) {
		k.attention.norm.keep(q, k.attention.a.normed, k.attention.x, s)
		k.mlp.norm.keep(q, k.mlp.a.normed, k.mlp.x, s)
		k.mlp.activate(q, s)
	})
}

func (k *block) weight(q issuer) {
	k.mlp.backwardWeight(q)
	k.attention.backwardWeight(q)
}
