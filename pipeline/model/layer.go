package model

import "pnode/kernels"

// layer is one layer bound to the buffers of one slot. forward and backwardInput take a
// stretch of the sequences, the others all. backwardInput computes what the
// layer before needs; backwardWeight adds to the gradients and may follow any time later
// when the stack keeps its activation gradients (StackConfig.SplitBackward). backward is
// both at once and gives the same bits, with less work where the two would compute
// something twice.
type layer interface {
	forward(q issuer, p stretch)
	backward(q issuer)
	backwardInput(q issuer, p stretch)
	backwardWeight(q issuer)
}

// issuer takes calls: a queue, or the check that a device supports them.
type issuer interface{ Do(c kernels.Call) }

// boundary are the residual stream and its gradient before and after a layer or a part of
// one, [N,C].
type boundary struct {
	x, y   kernels.View
	dx, dy kernels.View
}
