package model

import "pnode/kernels"

// norm is a LayerNorm over C channels with the row statistics of one slot.
type norm struct {
	weight, dweight kernels.View // [C]
	bias, dbias     kernels.View // [C]
	mean, rstd      kernels.View // [N] saved
	c               int
	eps             float32
}

func (v *vectors) norm(saved *arena, n, c int) norm {
	l := norm{c: c, eps: float32(v.model.NormEps), mean: saved.take(n), rstd: saved.take(n)}
	l.weight, l.dweight = v.next()
	l.bias, l.dbias = v.next()
	return l
}

func (l norm) forward(q issuer, y, x kernels.View, n int) {
	q.Do(kernels.LayerNormForward(y, l.mean, l.rstd, x, l.weight, l.bias, n, l.c, l.eps))
}

// backwardInput computes dx[N,C] = residual, if there is one, + the gradient.
func (l norm) backwardInput(q issuer, dx, dy, x kernels.View, n int, residual kernels.View) {
	q.Do(kernels.LayerNormBackwardInput(dx, dy, x, l.weight, l.mean, l.rstd, residual, n, l.c))
}

func (l norm) backwardWeight(q issuer, dy, x kernels.View, n int) {
	q.Do(kernels.LayerNormBackwardWeight(l.dweight, l.dbias, dy, x, l.mean, l.rstd, n, l.c))
}
