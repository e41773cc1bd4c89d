package gpu

import (
	"fmt"
	"math"

	"pnode/kernels"
)

// elements plans the operations on each element for itself.
func (p *Plan) elements(c kernels.Call) {
	a, n := c.Args, c.Dims[0]
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
	case kernels.OpFill:
		p.each("fill", n).memory(a[0]).longs(count).floats(c.Scalars[0])
	case kernels.OpCopy, kernels.OpCast:
		p.each("cast", n).stored(a[0]).stored(a[1]).longs(count)
	case kernels.OpAdamW:
		p.each("adamw", n).memory(a[:4]...).longs(count).floats(c.Scalars[:]...)
	case kernels.OpDropout:
		p.dropout(c)
	default:
		panic(fmt.Sprintf("gpu: no plan for %v", c.Op)) // the table has an operation that nobody planned
	}
}

// dropout drops element i when number first+i is below p*2^32.
func (p *Plan) dropout(c kernels.Call) {
	n, first, part := c.Dims[0], c.Dims[1], float64(c.Scalars[0])
	least := int(math.Ceil(part * (1 << 32)))
	p.each("dropout", blocks(first%4+n, 4)).memory(c.Args[:2]...).longs(uint64(n), uint64(first)).
		ints(least).floats(float32(1/(1-part))).longs(c.Random.Key, c.Random.Stream)
}

func (p *Plan) swiglu(c kernels.Call) {
	rows, width := c.Dims[0], c.Dims[1]
	if c.Op == kernels.OpSwiGLUForward {
		p.launch("swiglu_forward", rows).memory(c.Args[:2]...).ints(width)
		return
	}
	p.launch("swiglu_backward", rows).memory(c.Args[:3]...).ints(width)
}

func (p *Plan) rope(c kernels.Call) {
	rows, t, heads, d, width, start := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5]
	direction := float32(1)
	if c.Flags&kernels.Inverse != 0 {
		direction = -1
	}
	p.launch("rope", rows).memory(c.Args[:3]...).ints(t, start, heads, d, width).floats(direction)
}

func (p *Plan) crossEntropy(c kernels.Call) {
	p.Checked = true
	p.launch("cross_entropy", c.Dims[0]).memory(c.Args[:3]...).ints(c.Dims[1]).floats(c.Scalars[0]).fault(c.Op)
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
