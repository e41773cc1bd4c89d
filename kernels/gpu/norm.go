package gpu

import "pnode/kernels"

// norm plans the layer norms and the RMS norms, which are those without mean and bias, and
// reports whether the call is one.
func (p *Plan) norm(c kernels.Call) bool {
	operands, ok := kernels.NormOperands(c)
	switch c.Op {
	case kernels.OpLayerNormBackwardInput, kernels.OpRMSNormBackwardInput:
		p.launch("norm_backward_input", c.Dims[0]).memory(operands[:7]...).ints(c.Dims[1])
	case kernels.OpLayerNormBackwardWeight, kernels.OpRMSNormBackwardWeight:
		p.normBackwardWeight(c, operands[:6])
	default:
		if ok {
			p.launch("norm_forward", c.Dims[0]).memory(operands[:]...).ints(c.Dims[1]).floats(c.Scalars[0])
		}
	}
	return ok
}

// normBackwardWeight has the operands dw, db, dout, x, mean, rstd.
func (p *Plan) normBackwardWeight(c kernels.Call, operands []kernels.View) {
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
