package cpu

import (
	"fmt"
	"math"

	"pnode/kernels"
)

// Attention in tiles of queries and keys, without a [T,T] matrix (Dao et al. 2022,
// "FlashAttention", algorithms 1 and 4). A task is one key-value head of one sequence
// with all its query heads; inside it everything runs in ascending order.

// heads gives a task its pieces of the operands. A position's q, k, v are rows of
// `stride` floats in qkv [B,T,(H+2K)*D], a position's out a row of `outStride`. The query
// at position t attends the keys up to position past+t.
type heads struct {
	kernels.AttentionShape
	keys      int // number of keys: past+T
	past      int
	group     int // query heads that share a key-value head
	stride    int
	keyStride int // of a position's keys and values
	outStride int
	scale     float32 // 1/sqrt(D)
	starts    []int32 // [B,T] first key of each query, nil for 0
}

func newHeads(c kernels.Call) heads {
	s := kernels.AttentionShape{B: c.Dims[0], T: c.Dims[1], H: c.Dims[2], K: c.Dims[3], D: c.Dims[4]}
	stride := (s.H + 2*s.K) * s.D
	return heads{
		AttentionShape: s, keys: s.T, group: s.H / s.K,
		stride: stride, keyStride: stride, outStride: s.H * s.D,
		scale: float32(1 / math.Sqrt(float64(s.D))),
	}
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
	to = min(cols, h.past+t+1-key)
	if h.starts != nil {
		from = max(0, int(h.starts[b*h.T+t])-key)
	}
	return min(from, to), to
}

func (h *heads) query(b, head int) int { return b*h.T*h.stride + head*h.D }
func (h *heads) key(b, kv int) int     { return h.query(b, h.H+kv) }
func (h *heads) value(b, kv int) int   { return h.query(b, h.H+h.K+kv) }
func (h *heads) out(b, head int) int   { return b*h.T*h.outStride + head*h.D }
func (h *heads) row(b, head int) int   { return (b*h.H + head) * h.T }

// attentionTask is what the passes over one key-value head share.
type attentionTask struct {
	heads
	tiler
	block int // edge of a tile of scores
	width int // D rounded up to whole panels

	scores []float32 // [block,block]
}

func newAttentionTask(v *variant, w *worker, h heads) attentionTask {
	t := attentionTask{heads: h, tiler: tiler{v: v, w: w, scratch: cutter{w.scratch}}, block: v.block()}
	t.width = roundUp(t.D, v.nr)
	t.tiler.prepare(max(t.D, t.block))
	t.scores = t.scratch.take(t.block * t.block)
	return t
}

// taskScratch is the scratch in floats of newAttentionTask.
func (h *heads) taskScratch(v *variant) int {
	return tilerScratch(v, max(h.D, v.block())) + scratchSize(v.block()*v.block())
}

// keyPanels packs x [T,D] (rows of the given stride) transposed: panels of nr positions,
// [D,nr] each, for products whose columns are positions.
func (t *attentionTask) keyPanels(dst, x []float32, stride int) {
	for pos := 0; pos < t.keys; pos += t.v.nr {
		t.v.packTransposed(dst[pos*t.D:][:t.D*t.v.nr], x[pos*stride:], stride, min(t.v.nr, t.keys-pos), t.D)
	}
}

// keyPanelSize is the length of what keyPanels writes.
func (h *heads) keyPanelSize(v *variant) int { return roundUp(h.keys, v.nr) * h.D }

// channelPanels packs x [T,D] for products that contract over positions: for each block
// of positions, panels of nr channels, [positions,nr] each.
func (t *attentionTask) channelPanels(dst, x []float32, stride int) {
	for pos := 0; pos < t.keys; pos += t.block {
		k := min(t.block, t.keys-pos)
		for j := 0; j < t.D; j += t.v.nr {
			t.v.packRows(dst[pos*t.width+j*k:][:k*t.v.nr], x[pos*stride+j:], stride, min(t.v.nr, t.D-j), k)
		}
	}
}

func (h *heads) channelPanelSize(v *variant) int { return h.keys * roundUp(h.D, v.nr) }

func (d *Device) attentionForward(c kernels.Call) error {
	qkv := floats(c.Args[2])
	h := newHeads(c)
	if err := h.limit(ints(c.Args[3])); err != nil {
		return err
	}
	return d.attend(h, attended{out: floats(c.Args[0]), lse: floats(c.Args[1]), qkv: qkv, keys: func(b, kv int) (keys, values []float32) {
		return qkv[h.key(b, kv):], qkv[h.value(b, kv):]
	}})
}

// attended are the operands of a forward pass.
type attended struct {
	out, lse, qkv []float32 // lse is nil when nobody wants it
	keys          func(b, kv int) (keys, values []float32)
}

func (d *Device) attend(h heads, a attended) error {
	v := d.v
	rows := v.block()
	need := h.taskScratch(v) + scratchSize(h.keyPanelSize(v)) + scratchSize(h.channelPanelSize(v)) +
		scratchSize(rows*roundUp(h.D, v.nr)) + 2*scratchSize(rows)
	if err := d.pool.reserve(need); err != nil {
		return err
	}
	d.pool.run(h.B*h.K, func(w *worker, task int) {
		b, kv := task/h.K, task%h.K
		t := forwardTask{attentionTask: newAttentionTask(v, w, h), b: b}
		t.keys, t.values = t.scratch.take(h.keyPanelSize(v)), t.scratch.take(h.channelPanelSize(v))
		t.out = t.scratch.take(t.block * t.width)
		t.top, t.sum = t.scratch.take(t.block), t.scratch.take(t.block)
		keys, values := a.keys(b, kv)
		t.keyPanels(t.keys, keys, h.keyStride)
		t.channelPanels(t.values, values, h.keyStride)
		for head := kv * h.group; head < (kv+1)*h.group; head++ {
			for q := 0; q < h.T; q += t.block {
				t.queries(a.qkv[h.query(b, head)+q*h.stride:], q)
				t.finish(a.out[h.out(b, head)+q*h.outStride:], q)
				if a.lse != nil {
					t.finishLSE(a.lse[h.row(b, head)+q:], q)
				}
			}
		}
	})
	return nil
}

// forwardTask is the state of a block of queries: unscaled output, running maximum of
// the scaled scores and sum of exponentials of each row.
type forwardTask struct {
	attentionTask
	b            int // sequence
	keys, values []float32
	out          []float32 // [block,width]
	top, sum     []float32 // [block]
}

// queries runs the block of queries from position q on over all keys before its end.
func (t *forwardTask) queries(x []float32, q int) {
	rows := min(t.block, t.T-q)
	clear(t.out)
	for r := range rows {
		t.top[r], t.sum[r] = float32(math.Inf(-1)), 0
	}
	for key := 0; key < t.past+q+rows; key += t.block {
		cols := min(t.block, t.heads.keys-key)
		t.product(tileProduct{
			rows: rows, cols: cols, k: t.D, a: x, aRow: t.stride, aCol: 1, guard: true,
			panels: t.keys[key*t.D:], c: t.scores, cRow: t.block, lowerOnly: key == t.past+q,
		})
		for r := range rows {
			from, to := t.visible(t.b, q+r, key, cols)
			t.softmaxRow(r, from, to)
		}
		t.product(tileProduct{
			rows: rows, cols: t.D, k: cols, a: t.scores, aRow: t.block, aCol: 1,
			panels: t.values[key*t.width:], c: t.out, cRow: t.width, accumulate: true,
		})
	}
}

// softmaxRow turns the scores [from, to) of row r into exponentials relative to the
// running maximum, the rest of the row into zeros, and rescales what was summed before.
func (t *forwardTask) softmaxRow(r, from, to int) {
	row := t.scores[r*t.block : (r+1)*t.block]
	if from >= to {
		clear(row)
		return
	}
	clear(row[:from])
	clear(row[to:])
	seen := row[from:to]
	top := max(t.top[r], t.v.max(seen)*t.scale)
	sum := t.v.exp(seen, seen, t.scale, top)
	if old := t.top[r]; old != top {
		shrink := float32(math.Exp(float64(old - top))) // 0 for the first block
		t.sum[r] *= shrink
		t.v.scale(t.out[r*t.width:r*t.width+t.D], shrink)
		t.top[r] = top
	}
	t.sum[r] += sum
}

// finish writes the block's rows of out.
func (t *forwardTask) finish(out []float32, q int) {
	for r := range min(t.block, t.T-q) {
		row := t.out[r*t.width : r*t.width+t.D]
		t.v.scale(row, 1/t.sum[r])
		copy(out[r*t.outStride:r*t.outStride+t.D], row)
	}
}

// finishLSE writes the block's elements of lse.
func (t *forwardTask) finishLSE(lse []float32, q int) {
	for r := range min(t.block, t.T-q) {
		lse[r] = t.top[r] + float32(math.Log(float64(t.sum[r])))
	}
}
