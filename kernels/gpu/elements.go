package gpu

import (
	"fmt"
	"math"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// elements plans the operations on each element, or each row, for itself.
func (p *Plan) elements(c kernels.Call) {
	a, n, byChance := c.Args, c.Dims[0], c.Flags&kernels.Stochastic != 0
	count := uint64(n)
	switch c.Op {
	case kernels.OpGELUForward:
		p.each("gelu_forward", n).memory(a[:2]...).longs(count)
	case kernels.OpGELUBackward:
		p.each("gelu_backward", n).memory(a[:3]...).longs(count)
	case kernels.OpAdd:
		p.each("add", n).memory(a[:3]...).longs(count)
	case kernels.OpScale:
		p.each("scale", n).memory(a[0]).longs(count).floats(c.Scalars[0])
	case kernels.OpCombine:
		p.each("combine", n).memory(a[:3]...).longs(count, uint64(c.Dims[1])).floats(c.Scalars[:3]...)
	case kernels.OpFill:
		p.each("fill", n).memory(a[0]).longs(count).floats(c.Scalars[0])
	case kernels.OpCopy:
		p.each("cast", n).stored(a[0]).stored(a[1]).longs(count)
	case kernels.OpCast:
		if byChance && typeOf(a[0]) > typeOf(a[1]) { // what BF16 may not hold
			p.byChance("cast_by_chance", c, a[:2]...)
			return
		}
		p.each("cast", n).stored(a[0]).stored(a[1]).longs(count)
	case kernels.OpAdamW:
		if byChance && a[3].Present() {
			p.byChance("adamw_by_chance", c, a[:5]...).floats(c.Scalars[:]...)
			return
		}
		p.each("adamw", n).memory(a[:3]...).stored(a[3]).memory(a[4]).longs(count).floats(c.Scalars[:]...)
	case kernels.OpDropout: // of element i when number first+i is below p*2^32
		part := float64(c.Scalars[0])
		least := int(math.Ceil(part * (1 << 32)))
		p.byChance("dropout", c, a[:2]...).ints(least).floats(float32(1 / (1 - part)))
	case kernels.OpSwiGLUForward:
		p.launch("swiglu_forward", n).memory(a[:2]...).ints(c.Dims[1])
	case kernels.OpSwiGLUBackward:
		p.launch("swiglu_backward", n).memory(a[:3]...).ints(c.Dims[1])
	case kernels.OpRoPE:
		t, heads, d, width, start := c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5]
		direction := float32(1 - 2*flag(c, kernels.Inverse))
		p.launch("rope", n).memory(a[:3]...).ints(t, start, heads, d, width).floats(direction)
	case kernels.OpCrossEntropy:
		p.Checked = true
		p.launch("cross_entropy", n).memory(a[:3]...).ints(c.Dims[1]).floats(c.Scalars[0]).fault(c.Op)
	case kernels.OpQuantize: // four elements for each work-item
		number := uint64(c.Dims[1]) * (quant.Group / 4)
		p.launch("quantize", blocks(n, 4*p.Geometry.Group())).memory(a[:3]...).longs(count, number, c.Random.Key)
	case kernels.OpDequantize:
		p.each("dequantize", n).memory(a[:2]...).longs(count)
	default:
		panic(fmt.Sprintf("gpu: no plan for %v", c.Op)) // the table has an operation that nobody planned
	}
}

// byChance appends a kernel over the elements of a call that each have a random number.
func (p *Plan) byChance(kernel string, c kernels.Call, operands ...kernels.View) *Launch {
	n, first := c.Dims[0], c.Dims[1]
	return p.each(kernel, blocks(first%4+n, 4)).memory(operands...).
		longs(uint64(n), uint64(first), c.Random.Key, c.Random.Stream)
}

func (p *Plan) embedForward(c kernels.Call) {
	p.Checked = true
	b, t, width, vocab := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
	p.launch("embed_forward", b*t).memory(c.Args[:2]...).stored(c.Args[2]).memory(c.Args[3]).
		ints(t, width, vocab).fault(c.Op)
}

func (p *Plan) embedBackward(c kernels.Call) {
	p.Checked = true
	dwte, dwpe, dout, tokens := c.Args[0], c.Args[1], c.Args[2], c.Args[3]
	b, t, width, vocab := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3]
	p.launch("embed_backward_tokens", b*t).memory(dwte, dout, tokens).ints(b*t, width, vocab).fault(c.Op)
	if dwpe.Present() {
		p.each("embed_backward_positions", t*width).memory(dwpe, dout).ints(b).longs(uint64(t * width))
	}
}
