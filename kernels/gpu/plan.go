package gpu

import (
	"fmt"
	"strings"

	"pnode/kernels"
)

// Plan is how a call is executed: its launches, one after the other. The zero value is ready
// for Make, which uses the memory of earlier plans again.
type Plan struct {
	Geometry Geometry
	Launches []Launch
	// ScratchFloats is the memory that the launches pass to each other.
	ScratchFloats int
	// Checked reports whether a kernel checks indices and may set the fault word.
	Checked bool
}

// maxInt32 bounds the dimensions that kernels count in 32 bits: the last tile may end behind.
const maxInt32 = 1<<31 - 1<<12

// Supports reports whether there are kernels for the call, which Call.Check has accepted: nil or
// an error that wraps kernels.ErrUnsupported.
func Supports(c kernels.Call) error {
	info := kernels.Info(c.Op)
	if info.Optional {
		return fmt.Errorf("%w: %v: only processors have it", kernels.ErrUnsupported, c)
	}
	if strings.TrimSuffix(info.Dims, "p") == "N" {
		return nil // elements and their numbers are counted in 64 bits
	}
	for k, letter := range info.Dims {
		if c.Dims[k] > maxInt32 {
			return fmt.Errorf("%w: %v: %c is more than %d", kernels.ErrUnsupported, c, letter, maxInt32)
		}
	}
	switch c.Op {
	case kernels.OpAttentionForward, kernels.OpAttentionBackward, kernels.OpAttentionForwardPart, kernels.OpAttentionBackwardPart,
		kernels.OpAttentionCached:
		h, most := newHeads(c), headSizes[len(headSizes)-1]
		if h.D > most {
			return fmt.Errorf("%w: %v: heads of %d channels, at most %d", kernels.ErrUnsupported, c, h.D, most)
		}
		if h.width() > maxInt32 {
			return fmt.Errorf("%w: %v: rows of %d channels, at most %d", kernels.ErrUnsupported, c, h.width(), maxInt32)
		}
	case kernels.OpEmbedForward, kernels.OpEmbedBackward:
		if rows := c.Dims[0] * c.Dims[1]; rows > maxInt32 {
			return fmt.Errorf("%w: %v: %d rows, at most %d", kernels.ErrUnsupported, c, rows, maxInt32)
		}
	}
	return nil
}

// Make fills the plan for a call that Supports accepts.
func (p *Plan) Make(c kernels.Call) {
	p.Launches, p.ScratchFloats, p.Checked = p.Launches[:0], 0, false
	switch c.Op {
	case kernels.OpMatMul:
		p.matMul(c)
	case kernels.OpColumnSum:
		p.columnSum(c)
	case kernels.OpSumSquares:
		p.sumSquares(c)
	case kernels.OpEmbedForward:
		p.embedForward(c)
	case kernels.OpEmbedBackward:
		p.embedBackward(c)
	case kernels.OpAttentionForward, kernels.OpAttentionForwardPart:
		p.attentionForward(c)
	case kernels.OpAttentionBackward, kernels.OpAttentionBackwardPart:
		p.attentionBackward(c)
	case kernels.OpAttentionCached:
		p.attentionCached(c)
	default:
		if !p.norm(c) {
			p.elements(c)
		}
	}
}

// launch appends a kernel of one dimension over groups[0] x groups[1] work-groups.
func (p *Plan) launch(kernel string, groups ...int) *Launch {
	return p.grid(kernel, [2]int{p.Geometry.Group(), 1}, groups)
}

// launch2 appends a kernel of two dimensions.
func (p *Plan) launch2(kernel string, groups ...int) *Launch {
	return p.grid(kernel, [2]int{p.Geometry.Side, p.Geometry.Side}, groups)
}

func (p *Plan) grid(kernel string, items [2]int, groups []int) *Launch {
	if len(p.Launches) < cap(p.Launches) {
		p.Launches = p.Launches[:len(p.Launches)+1]
	} else {
		p.Launches = append(p.Launches, Launch{})
	}
	l := &p.Launches[len(p.Launches)-1]
	*l = Launch{Kernel: kernel, Groups: [3]int{1, 1, 1}, Items: items, Args: l.Args[:0], Params: l.Params[:0]}
	copy(l.Groups[:], groups)
	return l
}

// maxGroups bounds the work-groups that share the elements of an array.
const maxGroups = 1 << 14

// each appends a kernel over n elements.
func (p *Plan) each(kernel string, n int) *Launch {
	return p.launch(kernel, min(maxGroups, blocks(n, p.Geometry.Group())))
}

// blocks is how many blocks of `size` hold n.
func blocks(n, size int) int { return (n + size - 1) / size }
