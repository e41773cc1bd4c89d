package model

import "pnode/kernels"

// adapter adds scale * (x A') B' to some columns of a linear layer's output, those of the
// tensor it belongs to. Only the products with x read halves with such a storage: the others are
// small.
type adapter struct {
	a, da     kernels.View // [r,in]
	factor    kernels.View // a as the product with x reads it
	b, db     kernels.View // [columns,r]
	first     int          // column of the output
	rank      int
	scale     float32
	kept      kernels.View // [N,r] scale * x A', for the weight pass
	gradient  kernels.View // [N,r] scale * dy B
	rounding  rounding     // of gradient
	padded    kernels.View // [out,r] scratch: B, or its gradient, with rows for all columns; absent if B has them
	whole, in int          // columns of the output, and of the input
}

// take gives the adapter its buffers: b.rows rows, kept or not as the level says.
func (l *adapter) take(b *builder, level Recompute) {
	l.kept = b.activations(level, RecomputeBlock).take(b.rows * l.rank)
	l.gradient = b.deltas().take(b.rows * l.rank)
	l.rounding = rounding{b.passHalves(b.rows * l.rank)}
	if l.b.Len < l.whole*l.rank {
		l.padded = b.mem.layer.take(l.whole * l.rank)
	}
}

// wide is B with rows for all columns of the output, zero outside of its own.
func (l adapter) wide(q issuer) kernels.View {
	if l.padded.Len == 0 {
		return l.b
	}
	q.Do(kernels.Fill(l.padded, l.padded.Len, 0))
	q.Do(kernels.Copy(l.own(), l.b, l.b.Len))
	return l.padded
}

// own are the rows of the padded matrix that are B's.
func (l adapter) own() kernels.View { return l.padded.Slice(l.first*l.rank, l.b.Len) }

// reduced and dreduced are the rows of a pass over n of them, the head's are fewer than N.
func (l adapter) reduced(n int) kernels.View  { return l.kept.Slice(0, n*l.rank) }
func (l adapter) dreduced(n int) kernels.View { return l.gradient.Slice(0, n*l.rank) }

// reduce computes what the weight pass reads of the forward pass.
func (l adapter) reduce(q issuer, x kernels.View, n int) {
	reduced := l.reduced(n)
	q.Do(kernels.MatMul(reduced, x, l.factor, kernels.View{}, n, l.rank, l.in, kernels.TransB))
	q.Do(kernels.Scale(reduced, reduced.Len, l.scale))
}

func (l adapter) forward(q issuer, y, x kernels.View, n int) {
	l.reduce(q, x, n)
	q.Do(kernels.MatMul(y, l.reduced(n), l.wide(q), kernels.View{}, n, l.whole, l.rank, kernels.TransB|kernels.Accumulate))
}

// backwardInput adds to dx.
func (l adapter) backwardInput(q issuer, dx, dy kernels.View, n int) {
	dreduced := l.dreduced(n)
	q.Do(kernels.MatMul(dreduced, dy, l.wide(q), kernels.View{}, n, l.rank, l.whole, 0))
	q.Do(kernels.Scale(dreduced, dreduced.Len, l.scale))
	q.Do(kernels.MatMul(dx, dreduced, l.a, kernels.View{}, n, l.in, l.rank, kernels.Accumulate))
}

func (l adapter) backwardWeight(q issuer, dy, x kernels.View, n int) {
	q.Do(kernels.MatMul(l.da, l.rounding.of(q, l.dreduced(n)), x, kernels.View{}, l.rank, l.in, n, kernels.TransA|kernels.Accumulate))
	if l.padded.Len == 0 {
		q.Do(kernels.MatMul(l.db, dy, l.reduced(n), kernels.View{}, l.whole, l.rank, n, kernels.TransA|kernels.Accumulate))
		return
	}
	q.Do(kernels.MatMul(l.padded, dy, l.reduced(n), kernels.View{}, l.whole, l.rank, n, kernels.TransA))
	q.Do(kernels.Add(l.db, l.db, l.own(), l.db.Len))
}
