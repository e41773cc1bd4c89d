package gpu

import (
	"fmt"
	"math"

	"pnode/kernels"
	"pnode/kernels/quant"
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
	case kernels.OpCopy:
		p.each("cast", n).stored(a[0]).stored(a[1]).longs(count)
	case kernels.OpCast:
		p.cast(c)
	case kernels.OpAdamW:
		p.adamW(c)
	case kernels.OpDropout:
		p.dropout(c)
	case kernels.OpQuantize:
		p.quantize(c)
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

// cast rounds by chance only what BF16 may not hold.
func (p *Plan) cast(c kernels.Call) {
	out, x := c.Args[0], c.Args[1]
	if c.Flags&kernels.Stochastic != 0 && typeOf(out) > typeOf(x) {
		p.byChance("cast_by_chance", c, out, x)
		return
	}
	p.each("cast", c.Dims[0]).stored(out).stored(x).longs(uint64(c.Dims[0]))
}

func (p *Plan) adamW(c kernels.Call) {
	if c.Flags&kernels.Stochastic != 0 && c.Args[3].Present() {
		p.byChance("adamw_by_chance", c, c.Args[:5]...).floats(c.Scalars[:]...)
		return
	}
	p.each("adamw", c.Dims[0]).memory(c.Args[:3]...).stored(c.Args[3]).memory(c.Args[4]).longs(uint64(c.Dims[0])).floats(c.Scalars[:]...)
}

// dropout drops element i when number first+i is below p*2^32.
func (p *Plan) dropout(c kernels.Call) {
	part := float64(c.Scalars[0])
	least := int(math.Ceil(part * (1 << 32)))
	p.byChance("dropout", c, c.Args[:2]...).ints(least).floats(float32(1 / (1 - part)))
}

// quantize has four elements for each work-item.
func (p *Plan) quantize(c kernels.Call) {
	n, number := uint64(c.Dims[0]), uint64(c.Dims[1])*(quant.Group/4)
	p.launch("quantize", blocks(c.Dims[0], 4*p.Geometry.Group())).memory(c.Args[:3]...).longs(n, number, c.Random.Key)
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
