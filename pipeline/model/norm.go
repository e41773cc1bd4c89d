package model

import "pnode/kernels"

// norm normalises rows of C channels, with the row statistics of one slot.
type norm struct {
	kind            Norm
	weight, dweight kernels.View // [C]; the gradient is absent where it is frozen
	bias, dbias     kernels.View // [C]; LayerNorm only
	mean            kernels.View // [N]; LayerNorm only
	rstd            kernels.View // [N]
	c               int
	eps             float32
}

// norm takes room for the statistics of n rows.
func (v *vectors) norm(statistics *arena, n int) norm {
	l := v.bareNorm()
	l.rstd = statistics.take(n)
	if l.kind == LayerNorm {
		l.mean = statistics.take(n)
	}
	return l
}

// bareNorm has no statistics yet.
func (v *vectors) bareNorm() norm {
	l := norm{kind: v.model.Norm, c: v.model.Channels, eps: float32(v.model.NormEps)}
	l.weight, l.dweight = v.next()
	if l.kind == LayerNorm {
		l.bias, l.dbias = v.next()
	}
	return l
}

// at is the norm for passes over a span: the statistics are those of its rows.
func (l norm) at(s span) norm {
	l.mean, l.rstd = s.of(l.mean), s.of(l.rstd)
	return l
}

func (l norm) forward(q issuer, y, x kernels.View, n int) {
	if l.kind == RMSNorm {
		q.Do(kernels.RMSNormForward(y, l.rstd, x, l.weight, n, l.c, l.eps))
		return
	}
	q.Do(kernels.LayerNormForward(y, l.mean, l.rstd, x, l.weight, l.bias, n, l.c, l.eps))
}

// keep normalises a span of x and stores the result.
func (l norm) keep(q issuer, normed kept, x kernels.View, s span) {
	out := normed.at(s)
	l.at(s).forward(q, out.wide, s.of(x), s.n)
	out.store(q)
}

// addForward computes sum[N,C] = a + b and normalises it; sum may be a or b.
func (l norm) addForward(q issuer, y, sum, a, b kernels.View, n int) {
	if l.kind == RMSNorm {
		q.Do(kernels.AddRMSNormForward(y, sum, l.rstd, a, b, l.weight, n, l.c, l.eps))
		return
	}
	q.Do(kernels.AddLayerNormForward(y, sum, l.mean, l.rstd, a, b, l.weight, l.bias, n, l.c, l.eps))
}

// backwardInput computes dx[N,C] = the gradient + residual, where that is not absent.
func (l norm) backwardInput(q issuer, dx, dy, x kernels.View, n int, residual kernels.View) {
	if l.kind == RMSNorm {
		q.Do(kernels.RMSNormBackwardInput(dx, dy, x, l.weight, l.rstd, residual, n, l.c))
		return
	}
	q.Do(kernels.LayerNormBackwardInput(dx, dy, x, l.weight, l.mean, l.rstd, residual, n, l.c))
}

func (l norm) backwardWeight(q issuer, dy, x kernels.View, n int) {
	if l.dweight.Len == 0 {
		return
	}
	if l.kind == RMSNorm {
		q.Do(kernels.RMSNormBackwardWeight(l.dweight, dy, x, l.rstd, n, l.c))
		return
	}
	q.Do(kernels.LayerNormBackwardWeight(l.dweight, l.dbias, dy, x, l.mean, l.rstd, n, l.c))
}
