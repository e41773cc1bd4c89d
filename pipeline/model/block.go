package model

import "pnode/kernels"

// layer is one layer bound to the buffers of one slot. backwardInput computes what the
// layer before needs; backwardWeight adds to the gradients and may follow any time later
// when the stack keeps its activation gradients (StackConfig.SplitBackward).
type layer interface {
	forward(q issuer)
	backwardInput(q issuer)
	backwardWeight(q issuer)
}

// boundary are the residual stream and its gradient before and after a layer, [N,C].
type boundary struct {
	x, y   kernels.View
	dx, dy kernels.View
}

// block is a pre-LayerNorm transformer block:
//
//	mid = x + proj(attention(qkv(ln1(x))))
//	y   = mid + down(gelu(up(ln2(mid))))
type block struct {
	boundary
	shape                kernels.AttentionShape
	ln1, ln2             norm
	qkv, proj, up, down  linear
	n                    int // rows B*T
	a                    blockActivations
	d                    blockDeltas
	dattended, attnDelta kernels.View // scratch [N,C], [B,H,T]
}

// blockActivations are kept from forward to backward.
type blockActivations struct {
	ln1      kernels.View // [N,C]
	qkv      kernels.View // [N,3C]
	attended kernels.View // [N,C]
	lse      kernels.View // [B,H,T]
	mid      kernels.View // [N,C]
	ln2      kernels.View // [N,C]
	up       kernels.View // [N,4C]
	gelu     kernels.View // [N,4C]
}

// blockDeltas are activation gradients that backwardWeight reads after backwardInput.
type blockDeltas struct {
	up  kernels.View // [N,4C]
	ln2 kernels.View // [N,C]
	mid kernels.View // [N,C]
	qkv kernels.View // [N,3C]
	ln1 kernels.View // [N,C]
}

func newBlock(b *builder, v vectors, io boundary) *block {
	n, c := b.rows, b.model.Channels
	k := &block{boundary: io, shape: b.attention(), n: n, d: b.blockDeltas()}
	k.ln1 = v.norm(&b.mem.saved, n, c)
	k.qkv = v.linear(3*c, c)
	k.proj = v.linear(c, c)
	k.ln2 = v.norm(&b.mem.saved, n, c)
	k.up = v.linear(4*c, c)
	k.down = v.linear(c, 4*c)
	s := &b.mem.saved
	k.a = blockActivations{
		ln1: s.take(n * c), qkv: s.take(n * 3 * c), attended: s.take(n * c), lse: s.take(n * b.model.Heads),
		mid: s.take(n * c), ln2: s.take(n * c), up: s.take(n * 4 * c), gelu: s.take(n * 4 * c),
	}
	k.dattended, k.attnDelta = b.shared.dattended, b.shared.attnDelta
	return k
}

func (k *block) forward(q issuer) {
	n, nc := k.n, k.x.Len
	k.ln1.forward(q, k.a.ln1, k.x, n)
	k.qkv.forward(q, k.a.qkv, k.a.ln1, n)
	q.Do(kernels.AttentionForward(k.a.attended, k.a.lse, k.a.qkv, kernels.View{}, k.shape))
	k.proj.forward(q, k.a.mid, k.a.attended, n)
	q.Do(kernels.Add(k.a.mid, k.x, k.a.mid, nc))
	k.ln2.forward(q, k.a.ln2, k.a.mid, n)
	k.up.forward(q, k.a.up, k.a.ln2, n)
	q.Do(kernels.GELUForward(k.a.gelu, k.a.up, k.a.up.Len))
	k.down.forward(q, k.y, k.a.gelu, n)
	q.Do(kernels.Add(k.y, k.a.mid, k.y, nc))
}

func (k *block) backwardInput(q issuer) {
	n := k.n
	k.down.backwardInput(q, k.d.up, k.dy, n)
	q.Do(kernels.GELUBackward(k.d.up, k.d.up, k.a.up, k.d.up.Len))
	k.up.backwardInput(q, k.d.ln2, k.d.up, n)
	k.ln2.backwardInput(q, k.d.mid, k.d.ln2, k.a.mid, k.dy, n)

	k.proj.backwardInput(q, k.dattended, k.d.mid, n)
	q.Do(kernels.AttentionBackward(k.d.qkv, k.attnDelta, k.dattended, k.a.qkv, k.a.attended, k.a.lse, kernels.View{}, k.shape))
	k.qkv.backwardInput(q, k.d.ln1, k.d.qkv, n)
	k.ln1.backwardInput(q, k.dx, k.d.ln1, k.x, k.d.mid, n)
}

func (k *block) backwardWeight(q issuer) {
	n := k.n
	k.down.backwardWeight(q, k.dy, k.a.gelu, n)
	k.up.backwardWeight(q, k.d.up, k.a.ln2, n)
	k.ln2.backwardWeight(q, k.d.ln2, k.a.mid, n)
	k.proj.backwardWeight(q, k.d.mid, k.a.attended, n)
	k.qkv.backwardWeight(q, k.d.qkv, k.a.ln1, n)
	k.ln1.backwardWeight(q, k.d.ln1, k.x, n)
}
