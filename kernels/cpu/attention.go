package cpu

import (
	"fmt"
	"math"

	"pnode/kernels"
)

// Attention in blocks of queries and keys, without a [T,T] matrix (Dao et al. 2022,
// "FlashAttention", algorithms 1 and 4; Dao 2023, "FlashAttention-2", section 3.1).
//
// Scores are kept in units of ln 2: queries are multiplied by log2(e)/sqrt(D) when they are
// copied to scratch, so that a softmax is powers of 2.
//
// BF16 numbers are multiplied in pairs where a processor has such products: queries, keys, values and
// gradients as they are, and probabilities and gradients of scores rounded to BF16. The factors of the
// scores are then those of a softmax. Other halves are widened when they are packed.

const (
	// attentionChunk is the number of queries of a task and of keys packed at one time:
	// with 64 channels, what a task works on fills a second cache of 512 KiB. The next task's rows
	// come there beside it, which is still faster than to wait for them.
	attentionChunk = 256
	// attentionRoom is the chunk up to whole tiles of every variant.
	attentionRoom = 264
	// attentionRows is the number of queries whose scores are computed at one time, a
	// multiple of every mr: fewer make the sums over them short.
	attentionRows = 96
	// attentionGroup is the number of queries whose products a key's gradient gets as one sum.
	// It divides the chunk and attentionRows, and is what parts of the queries are made of
	// (AttentionShape.PartUnit) where heads share no keys.
	attentionGroup = 32
)

// heads gives a task its pieces of the operands. A position's q, k, v are rows of
// `stride` floats in qkv [B,T,(H+2K)*D], a position's out a row of `outStride`. The query
// at position t attends the keys up to position past+t.
type heads struct {
	kernels.AttentionShape
	past      int
	from, to  int // the queries that a pass takes
	group     int // query heads that share a key-value head
	stride    int
	keyStride int // of a position's keys and values
	outStride int
	scale     float32 // 1/sqrt(D)
	inPairs   bool    // products are those of pairs of BF16 numbers
	starts    []int32 // [B,T] first key of each query, nil for 0
}

func newHeads(c kernels.Call) heads {
	s := kernels.AttentionShape{B: c.Dims[0], T: c.Dims[1], H: c.Dims[2], K: c.Dims[3], D: c.Dims[4]}
	stride := (s.H + 2*s.K) * s.D
	h := heads{
		AttentionShape: s, to: s.T, group: s.H / s.K,
		stride: stride, keyStride: stride, outStride: s.H * s.D,
		scale: float32(1 / math.Sqrt(float64(s.D))),
	}
	if c.Op == kernels.OpAttentionForwardPart || c.Op == kernels.OpAttentionBackwardPart {
		h.from, h.to = c.Dims[5], c.Dims[5]+c.Dims[6]
	}
	return h
}

// bind says how products of a variant read qkv. An odd D would leave a number of each row without its pair.
func (h *heads) bind(v *variant, qkv kernels.View) {
	h.inPairs = v.pairs.multiply != nil && qkv.Buf.DType() == kernels.BF16 && h.D%2 == 0
}

// chunk is the part of a chunk of queries that a pass takes.
func (h *heads) chunk(i int) (q, rows int) {
	q = max(h.from, i*attentionChunk)
	return q, min(h.to, (i+1)*attentionChunk) - q
}

// limit gives the heads their first keys after a check.
func (h *heads) limit(starts []int32) error {
	for i, start := range starts {
		if last := h.past + i%h.T; start < 0 || int(start) > last {
			return fmt.Errorf("%w: starts[%d] is %d, want [0, %d]", kernels.ErrBadCall, i, start, last)
		}
	}
	h.starts = starts
	return nil
}

// visible is the range of the keys [key, key+cols) that query t of sequence b attends,
// relative to key; it may be empty.
func (h *heads) visible(b, t, key, cols int) (from, to int) {
	to = max(0, min(cols, h.past+t+1-key))
	if h.starts != nil {
		from = max(0, int(h.starts[b*h.T+t])-key)
	}
	return min(from, to), to
}

// first is the first key that any of the queries [t, t+n) of sequence b attends.
func (h *heads) first(b, t, n int) int {
	if h.starts == nil {
		return 0
	}
	least := h.starts[b*h.T+t]
	for _, start := range h.starts[b*h.T+t : b*h.T+t+n] {
		least = min(least, start)
	}
	return int(least)
}

func (h *heads) query(b, head int) int { return b*h.T*h.stride + head*h.D }
func (h *heads) key(b, kv int) int     { return h.query(b, h.H+kv) }
func (h *heads) value(b, kv int) int   { return h.query(b, h.H+h.K+kv) }
func (h *heads) out(b, head int) int   { return b*h.T*h.outStride + head*h.D }
func (h *heads) row(b, head int) int   { return (b*h.H + head) * h.T }

// attentionTask is the part that tasks of the forward and of the backward pass share.
type attentionTask struct {
	heads
	v       *variant
	micro   *microKernel
	w       *worker
	scratch cutter
	width   int // D rounded up to whole panels
	numbers int // of an element that is multiplied: 2 in pairs, else 1

	factors []float32 // [attentionRoom] of rows
	room    []float32 // [attentionRoom,D] rows in float32 of what is stored as halves
	zero    []float32 // [nr] zeros
	scores  []float32 // [attentionRows,attentionRoom]
}

func newAttentionTask(v *variant, w *worker, h heads, scratch cutter) attentionTask {
	t := attentionTask{heads: h, v: v, micro: &v.attention, w: w, scratch: scratch, numbers: 1}
	if h.inPairs {
		t.micro, t.numbers = &v.attentionPairs, 2
	}
	t.width = roundUp(h.D, t.micro.nr)
	t.factors = t.scratch.take(attentionRoom)
	t.room = t.scratch.take(attentionRoom * t.D)
	t.zero = t.scratch.take(t.micro.nr)
	clear(t.zero)
	t.scores = t.scratch.take(attentionRows * attentionRoom)
	return t
}

// elements is how many a row of n numbers has.
func (t *attentionTask) elements(n int) int { return blocks(n, t.numbers) }

// headRows are rows of a head, `stride` numbers apart. They are halves where products are those of pairs.
type headRows struct {
	stored
	stride int
}

// readable gives n rows of a head as products read them: where they are, or in the room if they are
// halves and products are of floats.
func (t *attentionTask) readable(x stored, stride, n int) headRows {
	if t.inPairs {
		return headRows{x, stride}
	}
	return t.widened(t.room, x, stride, n)
}

// widened gives n rows of a head in float32: where they are, or in the room if they are stored as a half.
func (t *attentionTask) widened(room []float32, x stored, stride, n int) headRows {
	if x.half == nil {
		return headRows{x, stride}
	}
	for r := range n {
		x.widen(room[r*t.D:(r+1)*t.D], x.half[r*stride:r*stride+t.D])
	}
	return headRows{stored{wide: room}, t.D}
}

// copied are rows that were copied to scratch.
func (t *attentionTask) copied(x []float32) headRows {
	if t.inPairs {
		return headRows{stored{half: asHalves(x)}, t.D}
	}
	return headRows{stored{wide: x}, t.D}
}

// ask makes the products that follow ask for n rows of a head.
func (t *attentionTask) ask(x stored, stride, n int) { t.w.ahead.add(x, stride, n, t.D, t.micro.asks) }

// copyTimes writes rows of x times a factor, dstRow and srcRow floats apart. Other than copy, it asks for
// them ahead.
func (t *attentionTask) copyTimes(dst, x []float32, dstRow, srcRow, rows int, factor float32) {
	t.v.timesRows(dst, x, dstRow, srcRow, t.D, t.same(rows, factor))
}

// same is one factor for each of some rows.
func (t *attentionTask) same(rows int, factor float32) []float32 {
	for r := range rows {
		t.factors[r] = factor
	}
	return t.factors[:rows]
}

// toPowers is the factor that makes products of queries and keys powers of 2.
func (t *attentionTask) toPowers() float32 { return t.scale * math.Log2E }

// copyFactors copies n rows of x to the left side of a product, times the factor where they are floats.
func (t *attentionTask) copyFactors(dst []float32, x headRows, n int, factor float32) {
	if !t.inPairs {
		t.copyTimes(dst, x.wide, t.D, x.stride, n, factor)
		return
	}
	halves := asHalves(dst)
	for r := range n {
		copy(halves[r*t.D:(r+1)*t.D], x.half[r*x.stride:])
	}
}

// positionPanels packs x [n,D] transposed: panels of nr positions, [D,nr] each, for products whose
// columns are positions.
func (t *attentionTask) positionPanels(dst []float32, x headRows, n int) {
	k, nr := t.elements(t.D), t.micro.nr
	wide, stride := x.wide, x.stride
	if t.inPairs {
		wide, stride = asPairs(x.half), stride/2
	}
	for pos := 0; pos < n; pos += nr {
		panel, cols := dst[pos*k:][:k*nr], min(nr, n-pos)
		if cols == nr {
			t.micro.transposeB(panel, wide[pos*stride:], stride, k)
		} else {
			packColumns(panel, wide[pos*stride:], stride, nr, cols, k)
		}
	}
}

// channelPanels packs x [n,D] for products that contract over positions: panels of nr
// channels, [n,nr] each.
func (t *attentionTask) channelPanels(dst []float32, x headRows, n int) {
	if t.inPairs {
		o := operand{stored: x.stored, stride: x.stride, unit: t.micro.nr, pair: t.micro.pairB, depth: n}
		o.packHalves(dst, nil, 0, t.D, 0, t.elements(n))
		return
	}
	for j := 0; j < t.D; j += t.micro.nr {
		panel, cols := dst[j*n:][:n*t.micro.nr], min(t.micro.nr, t.D-j)
		if cols == t.micro.nr {
			t.micro.copyB(panel, x.wide[j:], x.stride, n, 1)
		} else {
			packEdge(panel, x.wide[j:], x.stride, t.micro.nr, cols, n)
		}
	}
}
