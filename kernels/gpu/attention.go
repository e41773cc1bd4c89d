package gpu

import (
	"fmt"
	"math"
	"slices"

	"pnode/kernels"
)

// headSizes are the most channels of a head that there are kernels for.
var headSizes = [...]int{64, 128, 256}

// matrixHeadSizes has the head sizes with kernels on matrix units: registers have no room
// for the gradients of more channels.
var matrixHeadSizes = [...][]int{NoMatrix: nil, Turing: headSizes[:1], Ampere: headSizes[:2]}

// attentionKernels are the kernels for a head size. A work-group has a tile of rows: queries, or
// keys in the backward pass of keys.
type attentionKernels struct {
	forward, queries, keys string
	rows                   int
}

// attentionNames are the kernels for each head size, whose tiles have rows of each work-item, and thus
// another number with another Side; matrixAttentionNames those on matrix units, by type of operands.
var attentionNames, matrixAttentionNames = newAttentionKernels("", headSizes[:], "", 0), [...][]attentionKernels{
	typeBF16: newAttentionKernels("mma_", matrixHeadSizes[Ampere], "bf16_", matrixTile),
	typeF16:  newAttentionKernels("mma_", matrixHeadSizes[Ampere], "f16_", matrixTile),
}

func newAttentionKernels(units string, sizes []int, half string, rows int) (list []attentionKernels) {
	for _, d := range sizes {
		list = append(list, attentionKernels{
			forward: fmt.Sprintf("attention_%sforward_%s%d", units, half, d),
			queries: fmt.Sprintf("attention_%sbackward_queries_%s%d", units, half, d),
			keys:    fmt.Sprintf("attention_%sbackward_keys_%s%d", units, half, d),
			rows:    rows,
		})
	}
	return list
}

// attentionKernels returns the kernels for an attention over qkv.
func (p *Plan) attentionKernels(h heads, qkv kernels.View) attentionKernels {
	if p.Geometry.Multiplies(qkv.Buf.DType()) && h.size() < len(matrixHeadSizes[p.Geometry.Matrix]) {
		return matrixAttentionNames[typeOf(qkv)][h.size()]
	}
	k := attentionNames[h.size()]
	k.rows = tileSizes[1] * p.Geometry.Side
	return k
}

// heads are the sizes of an attention, and which queries [begin, end) of a sequence it is of.
type heads struct{ B, T, H, K, D, begin, end int }

func newHeads(c kernels.Call) heads {
	h := heads{B: c.Dims[0], T: c.Dims[1], H: c.Dims[2], K: c.Dims[3], D: c.Dims[4], end: c.Dims[1]}
	if c.Op == kernels.OpAttentionForwardPart || c.Op == kernels.OpAttentionBackwardPart {
		h.begin, h.end = c.Dims[5], c.Dims[5]+c.Dims[6]
	}
	return h
}

// width is the length of a row of queries, keys and values.
func (h heads) width() int { return (h.H + 2*h.K) * h.D }

// size is the index of the smallest head size that holds D.
func (h heads) size() int {
	return slices.IndexFunc(headSizes[:], func(d int) bool { return h.D <= d })
}

// factor scales scores, in the natural logarithm.
func (h heads) factor() float32 { return float32(1 / math.Sqrt(float64(h.D))) }

// attended are the operands of the forward kernel. Keys and values of a position are a row of
// keyStride elements, those of a sequence keyBatch; `past` rows are older than the queries.
type attended struct {
	out, lse, queries, keys, values, starts kernels.View
	past, keyStride, keyBatch               int
}

func (p *Plan) attend(c kernels.Call, a attended) {
	h := newHeads(c)
	p.Checked = a.starts.Present()
	kernel := p.attentionKernels(h, a.queries)
	p.launch2(kernel.forward, blocks(h.end-h.begin, kernel.rows), h.H, h.B).
		memory(a.out, a.lse, a.queries, a.keys, a.values, a.starts).
		ints(typeOf(a.queries), h.T, h.begin, h.end, h.H, h.H/h.K, h.D, a.past, h.width(), a.keyStride).longs(uint64(a.keyBatch)).
		floats(h.factor()).fault(c.Op)
}

// from is the part of v from element n on.
func from(v kernels.View, n int) kernels.View { return v.Slice(n, v.Len-n) }

func (p *Plan) attentionForward(c kernels.Call) {
	h, qkv := newHeads(c), c.Args[2]
	p.attend(c, attended{
		out: c.Args[0], lse: c.Args[1], starts: c.Args[3],
		queries: qkv, keys: from(qkv, h.H*h.D), values: from(qkv, (h.H+h.K)*h.D),
		keyStride: h.width(), keyBatch: h.T * h.width(),
	})
}

func (p *Plan) attentionCached(c kernels.Call) {
	h, past, room := newHeads(c), c.Dims[5], c.Dims[6]
	cache, qkv, row := c.Args[1], c.Args[2], 2*h.K*h.D
	p.launch("cache_append", h.B*h.T).memory(cache, qkv).ints(h.T, h.width(), h.H*h.D, row, past, room)
	p.attend(c, attended{
		out: c.Args[0], starts: c.Args[3],
		queries: qkv, keys: cache, values: from(cache, h.K*h.D),
		past: past, keyStride: row, keyBatch: room * row,
	})
}

func (p *Plan) attentionBackward(c kernels.Call) {
	h := newHeads(c)
	dqkv, delta, dout, qkv, out, lse, starts := c.Args[0], c.Args[1], c.Args[2], c.Args[3], c.Args[4], c.Args[5], c.Args[6]
	p.Checked = starts.Present()
	rows := h.B * h.H * h.T
	p.each("attention_delta", rows).memory(delta, dout, out).ints(typeOf(qkv), h.T, h.H, h.D).longs(uint64(rows))
	by := p.attentionKernels(h, qkv)
	for _, kernel := range []struct {
		name             string
		positions, heads int
	}{{by.queries, h.end - h.begin, h.H}, {by.keys, h.end, h.K}} {
		p.launch2(kernel.name, blocks(kernel.positions, by.rows), kernel.heads, h.B).
			stored(dqkv).memory(delta, dout).stored(qkv).memory(lse, starts).
			ints(h.T, h.begin, h.end, h.H, h.K, h.D).floats(h.factor())
	}
	p.Launches[1].fault(c.Op)
	p.Launches[2].ints(flag(c, kernels.Accumulate))
}
