package cpu

import (
	"math"

	"pnode/kernels"
)

func (d *Device) attentionForward(c kernels.Call, h heads) error {
	qkv := d.elements(c.Args[2])
	if err := h.limit(ints(c.Args[3])); err != nil {
		return err
	}
	return d.attend(h, attended{out: d.elements(c.Args[0]), lse: floats(c.Args[1]), qkv: qkv, keys: func(b, kv int) (keys, values stored) {
		return qkv.from(h.key(b, kv)), qkv.from(h.value(b, kv))
	}})
}

// attended are the operands of a forward pass.
type attended struct {
	out, qkv stored
	lse      []float32 // nil when nobody wants it
	keys     func(b, kv int) (keys, values stored)
}

// attend runs a task for each head and chunk of queries. The last chunks come first: they
// see the most keys.
func (d *Device) attend(h heads, a attended) error {
	dry := cutter{dry: true}
	if err := d.pool.reserve(newForwardTask(d.v, nil, h, dry).scratch.used); err != nil {
		return err
	}
	first, chunks, each := h.from/attentionChunk, blocks(h.to, attentionChunk), h.B*h.H
	d.pool.run((chunks-first)*each, func(w *worker, task int) {
		t := newForwardTask(d.v, w, h, cutter{rest: w.scratch})
		q, rows := h.chunk(chunks - 1 - task/each)
		t.b, t.q, t.rows = task%each/h.H, q, rows
		head := task % each % h.H
		keys, values := a.keys(t.b, head/h.group)
		t.chunk(a.qkv.from(h.query(t.b, head)+q*h.stride), keys, values)
		t.finish(a.out.from(h.out(t.b, head) + q*h.outStride))
		if a.lse != nil {
			t.finishLSE(a.lse[h.row(t.b, head)+q:])
		}
	})
	return nil
}

// forwardTask is the state of a chunk of queries: unscaled output, running maximum of
// the scores and sum of powers of each row.
type forwardTask struct {
	attentionTask
	b, q, rows   int       // sequence, first query, number of queries
	queries      []float32 // [attentionRoom,D]
	keys, values []float32 // position panels, channel panels of a chunk
	out          []float32 // [attentionRoom,width]
	top, sum     []float32 // [attentionChunk]
}

func newForwardTask(v *variant, w *worker, h heads, scratch cutter) forwardTask {
	t := forwardTask{attentionTask: newAttentionTask(v, w, h, scratch)}
	t.queries = t.scratch.take(attentionRoom * t.D)
	t.keys, t.values = t.scratch.take(attentionRoom*t.D), t.scratch.take(attentionRoom*t.width)
	t.out = t.scratch.take(attentionRoom * t.width)
	t.top, t.sum = t.scratch.take(attentionRoom), t.scratch.take(attentionRoom)
	return t
}

// chunk runs the chunk of queries over all keys before its end.
func (t *forwardTask) chunk(x, keys, values stored) {
	queries, stride := t.widened(t.room, x, t.stride, t.rows)
	t.copyQueries(t.queries, queries, stride, t.rows)
	for r := range t.rows {
		t.top[r], t.sum[r] = float32(math.Inf(-1)), 0
	}
	end := t.past + t.q + t.rows
	first := t.first(t.b, t.q, t.rows) / attentionChunk * attentionChunk
	for key := first; key < end; key += attentionChunk {
		cols := min(attentionChunk, end-key)
		rows, stride := t.widened(t.room, keys.from(key*t.keyStride), t.keyStride, cols)
		t.positionPanels(t.keys, rows, stride, cols)
		rows, stride = t.widened(t.room, values.from(key*t.keyStride), t.keyStride, cols)
		t.channelPanels(t.values, rows, stride, cols)
		for r := 0; r < t.rows; r += attentionRows {
			t.block(r, key, cols, key > first)
		}
	}
}

// block runs attentionRows queries from row r on over the packed keys [key, key+cols).
func (t *forwardTask) block(r, key, cols int, accumulate bool) {
	rows := min(attentionRows, t.rows-r)
	before := t.past + t.q + r - key // keys that even the first row sees
	seen := min(cols, before+rows)
	if seen <= 0 {
		return
	}
	t.multiply(blockProduct{
		of: pairsOut, before: before, rows: rows, cols: seen, k: t.D, a: t.queries[r*t.D:], aRow: t.D, aCol: 1,
		panels: t.keys, panel: t.D * t.micro.nr, c: t.scores, cRow: attentionRoom,
	})
	for i := range rows {
		from, to := t.visible(t.b, t.q+r+i, key, seen)
		row := t.scores[i*attentionRoom : i*attentionRoom+seen]
		clear(row[:from])
		clear(row[to:])
		if from < to {
			t.softmaxRow(r+i, row[from:to])
		}
	}
	t.multiply(blockProduct{
		of: keysSummed, before: before, rows: rows, cols: t.D, k: seen, a: t.scores, aRow: attentionRoom, aCol: 1,
		panels: t.values, panel: cols * t.micro.nr, c: t.out[r*t.width:], cRow: t.width, accumulate: accumulate,
	})
}

// softmaxRow turns the scores of row r into powers relative to the running maximum and
// rescales what was summed before.
func (t *forwardTask) softmaxRow(r int, scores []float32) {
	old := t.top[r]
	top, sum := t.v.softmax(scores, old)
	if old != top && t.sum[r] > 0 {
		shrink := exp2Generic(old - top)
		t.sum[r] *= shrink
		t.v.scale(t.out[r*t.width:r*t.width+t.D], shrink)
	}
	t.top[r] = top
	t.sum[r] += sum
}

// finish writes the chunk's rows of out.
func (t *forwardTask) finish(out stored) {
	factors := t.factors[:t.rows]
	for r := range factors {
		factors[r] = 1 / t.sum[r]
	}
	if out.half == nil {
		t.v.timesRows(out.wide, t.out, t.outStride, t.width, t.D, factors)
		return
	}
	t.v.timesRows(t.room, t.out, t.D, t.width, t.D, factors)
	for r := range t.rows {
		out.narrow(out.half[r*t.outStride:][:t.D], t.room[r*t.D:][:t.D])
	}
}

// finishLSE writes the chunk's elements of lse, in units of 1.
func (t *forwardTask) finishLSE(lse []float32) {
	for r := range t.rows {
		lse[r] = float32((float64(t.top[r]) + math.Log2(float64(t.sum[r]))) * math.Ln2)
	}
}
