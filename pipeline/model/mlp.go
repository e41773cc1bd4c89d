package model

import "pnode/kernels"

// mlp is the second branch of a block: x = before + branch of the attention, and
// y = x + dropout(down(activation(up(norm(x))))).
type mlp struct {
	boundary
	before   kernels.View // [N,C] the block's input
	norm     norm
	up, down linear // up is gate and up in one, [2F,C], with SwiGLU
	model    resolved
	dropout  dropout
	n        int      // rows B*T
	a        struct { // what is kept from forward to backward, as far as the level says
		normed    kept // [N,C]
		hidden    kept // [N,F] or [N,2F]
		activated kept // [N,F]
	}
	d struct { // gradients that the weight pass reads after the input pass
		branch kernels.View // [N,C]; absent without dropout
		hidden kernels.View // like the activation
		normed kernels.View // [N,C]
	}
	dactivated kernels.View // [N,F] scratch; with GELU the place of its result d.hidden
}

func newMLP(b *builder, v *vectors, io boundary, at place) mlp {
	n, m := b.rows, b.model
	k := mlp{boundary: io, model: m, n: n}
	k.norm = v.norm(b.activations(at.level, RecomputeBlock), n)
	k.up, k.down = v.mlpLinears()
	k.dropout = dropout{share: float32(m.ResidualDropout), noise: at.noise, layer: at.layer, site: siteMLP}
	k.a.normed = b.keep(at.level, RecomputeOutputs, at.desk.in, n*m.Channels)
	k.a.hidden = b.keep(at.level, RecomputeBlock, at.desk.out, n*k.up.out)
	k.a.activated = b.keep(at.level, RecomputeOutputs, at.desk.in, n*m.MLP)
	k.d.branch = k.dropout.room(b.deltas(), n*m.Channels)
	k.d.hidden, k.d.normed = b.deltas().take(n*k.up.out), b.deltas().take(n*m.Channels)
	k.up.take(b, at)
	k.down.take(b, at)
	k.dactivated = k.d.hidden
	if m.Activation == SwiGLU {
		k.dactivated = b.scratch().take(n * m.MLP)
	}
	return k
}

// forward starts from the attention's branch in x.
func (k *mlp) forward(q issuer, p stretch) {
	p.each(func(s span) {
		k.prepare(q, s)
		y := s.of(k.y)
		k.down.from(s.first).forward(q, y, k.a.activated.at(s).factor(), s.n)
		k.dropout.apply(q, k.y, s)
		q.Do(kernels.Add(y, s.of(k.x), y, y.Len))
	})
}

// prepare is forward without the branch's result.
func (k *mlp) prepare(q issuer, s span) {
	normed, hidden := k.a.normed.at(s), k.a.hidden.at(s)
	k.norm.at(s).addForward(q, normed.wide, s.of(k.x), s.of(k.before), s.of(k.x), s.n)
	normed.store(q)
	k.up.from(s.first).forward(q, hidden.wide, normed.factor(), s.n)
	hidden.store(q)
	k.activate(q, s)
}

// restore is forward as far as the backward pass reads it.
func (k *mlp) restore(q issuer, p stretch) {
	p.each(func(s span) {
		k.prepare(q, s)
		k.down.from(s.first).restore(q, k.a.activated.at(s).factor(), s.n)
	})
}

func (k *mlp) activate(q issuer, s span) {
	hidden, activated := k.a.hidden.at(s), k.a.activated.at(s)
	hidden.load(q)
	activate(q, k.model, activated.wide, hidden.wide, s.n)
	activated.store(q)
}

// activate computes out [n,F] from hidden [n,F], or with SwiGLU [n,2F].
func activate(q issuer, m resolved, out, hidden kernels.View, n int) {
	if m.Activation == SwiGLU {
		q.Do(kernels.SwiGLUForward(out, hidden, n, m.MLP))
		return
	}
	q.Do(kernels.GELUForward(out, hidden, hidden.Len))
}

func (k *mlp) backwardInput(q issuer, p stretch) {
	p.each(func(s span) {
		hidden, dactivated, dhidden, dnormed := k.a.hidden.at(s), s.of(k.dactivated), s.of(k.d.hidden), s.of(k.d.normed)
		k.down.from(s.first).backwardInput(q, dactivated, k.dropout.gradient(q, k.d.branch, k.dy, s), s.n)
		hidden.load(q)
		if k.model.Activation == SwiGLU {
			q.Do(kernels.SwiGLUBackward(dhidden, dactivated, hidden.wide, s.n, k.model.MLP))
		} else {
			q.Do(kernels.GELUBackward(dhidden, dactivated, hidden.wide, dhidden.Len))
		}
		k.up.from(s.first).backwardInput(q, dnormed, dhidden, s.n)
		k.norm.at(s).backwardInput(q, s.of(k.dx), dnormed, s.of(k.x), s.n, s.of(k.dy))
	})
}

func (k *mlp) backwardWeight(q issuer) {
	k.down.backwardWeight(q, k.dropout.gradientView(k.d.branch, k.dy), k.a.activated.factor(), k.n)
	k.up.backwardWeight(q, k.d.hidden, k.a.normed.factor(), k.n)
	k.norm.backwardWeight(q, k.d.normed, k.x, k.n)
}
