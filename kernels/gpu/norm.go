package gpu

import "pnode/kernels"

// norm plans the layer norms and the RMS norms, which are those without mean and bias, and
// reports whether the call is one.
func (p *Plan) norm(c kernels.Call) bool {
	var none kernels.View
	a := c.Args
	switch c.Op {
	case kernels.OpLayerNormForward: // out, mean, rstd, x, w, b
		p.normForward(c, a[0], none, a[1], a[2], a[3], none, a[4], a[5])
	case kernels.OpAddLayerNormForward:
		p.normForward(c, a[:]...)
	case kernels.OpRMSNormForward: // out, rstd, x, w
		p.normForward(c, a[0], none, none, a[1], a[2], none, a[3], none)
	case kernels.OpAddRMSNormForward: // out, sum, rstd, a, b, w
		p.normForward(c, a[0], a[1], none, a[2], a[3], a[4], a[5], none)
	case kernels.OpLayerNormBackwardInput:
		p.normBackwardInput(c, a[:7]...)
	case kernels.OpRMSNormBackwardInput: // dx, dout, x, w, rstd, residual
		p.normBackwardInput(c, a[0], a[1], a[2], a[3], none, a[4], a[5])
	case kernels.OpLayerNormBackwardWeight:
		p.normBackwardWeight(c, a[:6]...)
	case kernels.OpRMSNormBackwardWeight: // dw, dout, x, rstd
		p.normBackwardWeight(c, a[0], none, a[1], a[2], none, a[3])
	default:
		return false
	}
	return true
}

// normForward has the operands out, sum, mean, rstd, a, b, w, bias.
func (p *Plan) normForward(c kernels.Call, operands ...kernels.View) {
	p.launch("norm_forward", c.Dims[0]).memory(operands...).ints(c.Dims[1]).floats(c.Scalars[0])
}

// normBackwardInput has the operands dx, dout, x, w, mean, rstd, residual.
func (p *Plan) normBackwardInput(c kernels.Call, operands ...kernels.View) {
	p.launch("norm_backward_input", c.Dims[0]).memory(operands...).ints(c.Dims[1])
}

// normBackwardWeight has the operands dw, db, dout, x, mean, rstd.
func (p *Plan) normBackwardWeight(c kernels.Call, operands ...kernels.View) {
	rows, width, parts := c.Dims[0], c.Dims[1], blocks(c.Dims[0], partRows)
	dw, db := operands[0], operands[1]
	size := parts * width
	p.ScratchFloats = 2 * size
	p.columnParts("norm_weight_parts", rows, width).scratch(0).scratch(size).memory(operands[2:]...).ints(rows, width, partRows)
	p.addParts(dw, 0, parts, width, 1)
	if db.Present() {
		p.addParts(db, size, parts, width, 1)
	}
}
