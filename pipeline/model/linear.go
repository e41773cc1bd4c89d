package model

import "pnode/kernels"

// issuer takes calls: a queue, or the check that a device supports them.
type issuer interface{ Do(c kernels.Call) }

// vectors are a layer's parameters and gradients, taken tensor by tensor in order.
type vectors struct {
	params, grads kernels.View
	tensors       []Tensor
}

// next gives the views of the next tensor and of its gradient.
func (v *vectors) next() (param, grad kernels.View) {
	t := v.tensors[0]
	v.tensors = v.tensors[1:]
	return v.params.Slice(t.Off, t.Len()), v.grads.Slice(t.Off, t.Len())
}

// linear is y[N,out] = x[N,in] * weight' + bias.
type linear struct {
	weight, dweight kernels.View // [out,in]
	bias, dbias     kernels.View // [out]; absent in the head
	out, in         int
}

func (v *vectors) linear(out, in int) linear {
	l := linear{out: out, in: in}
	l.weight, l.dweight = v.next()
	l.bias, l.dbias = v.next()
	return l
}

func (l linear) forward(q issuer, y, x kernels.View, n int) {
	q.Do(kernels.MatMul(y, x, l.weight, l.bias, n, l.out, l.in, kernels.TransB))
}

// backwardInput overwrites dx[N,in] with dy[N,out] * weight.
func (l linear) backwardInput(q issuer, dx, dy kernels.View, n int) {
	q.Do(kernels.MatMul(dx, dy, l.weight, kernels.View{}, n, l.in, l.out, 0))
}

// backwardWeight adds dy' * x to dweight and the column sums of dy to dbias.
func (l linear) backwardWeight(q issuer, dy, x kernels.View, n int) {
	q.Do(kernels.MatMul(l.dweight, dy, x, kernels.View{}, l.out, l.in, n, kernels.TransA|kernels.Accumulate))
	if l.dbias.Len > 0 { // not Present: Costs issues calls before there is memory
		q.Do(kernels.ColumnSum(l.dbias, dy, n, l.out, kernels.Accumulate))
	}
}

// normEps is GPT-2's epsilon.
const normEps = 1e-5

// norm is LayerNorm over C channels with the row statistics of one slot.
type norm struct {
	weight, dweight kernels.View // [C]
	bias, dbias     kernels.View // [C]
	mean, rstd      kernels.View // [N] saved
	c               int
}

func (v *vectors) norm(saved *arena, n, c int) norm {
	l := norm{c: c, mean: saved.take(n), rstd: saved.take(n)}
	l.weight, l.dweight = v.next()
	l.bias, l.dbias = v.next()
	return l
}

func (l norm) forward(q issuer, y, x kernels.View, n int) {
	q.Do(kernels.LayerNormForward(y, l.mean, l.rstd, x, l.weight, l.bias, n, l.c, normEps))
}

// backwardInput computes dx[N,C], plus residual[N,C] where it is present.
func (l norm) backwardInput(q issuer, dx, dy, x, residual kernels.View, n int) {
	q.Do(kernels.LayerNormBackwardInput(dx, dy, x, l.weight, l.mean, l.rstd, residual, n, l.c))
}

func (l norm) backwardWeight(q issuer, dy, x kernels.View, n int) {
	q.Do(kernels.LayerNormBackwardWeight(l.dweight, l.dbias, dy, x, l.mean, l.rstd, n, l.c))
}
