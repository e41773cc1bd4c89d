package gpu

import (
	"fmt"
	"math"
	"slices"

	"pnode/kernels"
)

// headSizes are the most channels of a head that there are kernels for.
var headSizes = [...]int{64, 128, 256}

// attentionNames are the kernels for each head size.
var attentionNames = func() (names [len(headSizes)]struct{ forward, queries, keys string }) {
	for i, d := range headSizes {
		names[i].forward = fmt.Sprintf("attention_forward_%d", d)
		names[i].queries = fmt.Sprintf("attention_backward_queries_%d", d)
		names[i].keys = fmt.Sprintf("attention_backward_keys_%d", d)
	}
	return names
}()

// heads are the sizes of an attention, and which queries [begin, end) of a sequence it is of.
type heads struct{ B, T, H, K, D, begin, end int }

func newHeads(c kernels.Call) heads {
	h := heads{B: c.Dims[0], T: c.Dims[1], H: c.Dims[2], K: c.Dims[3], D: c.Dims[4], end: c.Dims[1]}
	if c.Op == kernels.OpAttentionForwardPart || c.Op == kernels.OpAttentionBackwardPart {
		h.begin, h.end = c.Dims[5], c.Dims[5]+c.Dims[6]
	}
	return h
}

func supportsAttention(c kernels.Call) error {
	h, most := newHeads(c), headSizes[len(headSizes)-1]
	if h.D > most {
		return fmt.Errorf("%w: %v: heads of %d channels, at most %d", kernels.ErrUnsupported, c, h.D, most)
	}
	if h.width() > maxInt32 {
		return fmt.Errorf("%w: %v: rows of %d channels, at most %d", kernels.ErrUnsupported, c, h.width(), maxInt32)
	}
	return nil
}

// width is the length of a row of queries, keys and values.
func (h heads) width() int { return (h.H + 2*h.K) * h.D }

// size is the index of the smallest head size that holds D.
func (h heads) size() int {
	return slices.IndexFunc(headSizes[:], func(d int) bool { return h.D <= d })
}

// factor scales scores, in the natural logarithm.
func (h heads) factor() float64 { return 1 / math.Sqrt(float64(h.D)) }

// attended are the operands of the forward kernel. Keys and values of a position are a row of
// keyStride elements, those of a sequence keyBatch; `past` rows are older than the queries.
type attended struct {
	out, lse, queries, keys, values, starts kernels.View
	past, keyStride, keyBatch               int
}

func (p *Plan) attend(c kernels.Call, a attended) {
	h := newHeads(c)
	p.Checked = a.starts.Present()
	p.launch2(attentionNames[h.size()].forward, p.tiles(h.end-h.begin), h.H, h.B).
		memory(a.out, a.lse, a.queries, a.keys, a.values, a.starts).
		ints(h.T, h.begin, h.end, h.H, h.H/h.K, h.D, a.past, h.width(), a.keyStride).longs(uint64(a.keyBatch)).
		floats(float32(h.factor() * math.Log2E)).fault(c.Op)
}

// tiles is the number of tiles of queries or keys.
func (p *Plan) tiles(positions int) int { return blocks(positions, tileSizes[1]*p.Geometry.Side) }

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
	p.each("attention_delta", rows).memory(delta, dout, out).ints(h.T, h.H, h.D).longs(uint64(rows))
	names := attentionNames[h.size()]
	for _, kernel := range []struct {
		name             string
		positions, heads int
	}{{names.queries, h.end - h.begin, h.H}, {names.keys, h.end, h.K}} {
		p.launch2(kernel.name, p.tiles(kernel.positions), kernel.heads, h.B).memory(dqkv, delta, dout, qkv, lse, starts).
			ints(h.T, h.begin, h.end, h.H, h.K, h.D).floats(float32(h.factor()))
	}
	p.Launches[1].fault(c.Op)
	p.Launches[2].ints(flag(c, kernels.Accumulate))
}
