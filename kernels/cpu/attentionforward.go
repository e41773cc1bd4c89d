package cpu

import (
	"math"

	"pnode/kernels"
)

func (d *Device) attentionForward(c kernels.Call) error {
	h, qkv := newHeads(c), d.v.elements(c.Args[2])
	h.bind(d.v, c.Args[2])
	if err := h.limit(ints(c.Args[3])); err != nil {
		return err
	}
	return d.attend(h, attended{out: d.v.elements(c.Args[0]), lse: floats(c.Args[1]), qkv: qkv, keys: func(b, kv int) (keys, values stored) {
		return qkv.from(h.key(b, kv)), qkv.from(h.value(b, kv))
	}})
}

// attended are the operands of a forward pass. What is absent is not written.
type attended struct {
	out, qkv  stored
	lse       []float32
	softmaxes []softmax // [B,H,T]
	keys      func(b, kv int) (keys, values stored)
}

// softmax turns the scores of a row, in units of ln 2, into probabilities: 2^(score-top)/sum.
type softmax struct{ top, sum float32 }

// queryChunk is the queries [q, q+rows) of a head of a sequence.
type queryChunk struct{ b, head, q, rows int }

// attend runs a task for each head and chunk of queries. The last chunks come first: they
// see the most keys.
func (d *Device) attend(h heads, a attended) error {
	dry := cutter{dry: true}
	if err := d.pool.reserve(newForwardTask(d.v, nil, h, dry).scratch.used); err != nil {
		return err
	}
	first, chunks, each := h.from/attentionChunk, blocks(h.to, attentionChunk), h.B*h.H
	tasks := (chunks - first) * each
	place := func(task int) (c queryChunk) {
		if task < tasks {
			c.b, c.head = task%each/h.H, task%each%h.H
			c.q, c.rows = h.chunk(chunks - 1 - task/each)
		}
		return c
	}
	d.pool.run(tasks, func(w *worker, task int) {
		t := newForwardTask(d.v, w, h, cutter{rest: w.scratch})
		t.attended, t.queryChunk, t.next = a, place(task), place(d.pool.after(task))
		t.run()
	})
	return nil
}

// forwardTask is the state of a chunk of queries: unscaled output, running maximum of
// the scores and sum of powers of each row.
type forwardTask struct {
	attentionTask
	attended
	queryChunk
	next       queryChunk // of the worker; without rows if there is none
	queries    []float32  // [attentionRoom,D]
	weights    []float32  // [attentionRows,attentionRoom] powers in pairs, where products are of those
	keyColumns []float32  // position panels of a chunk of keys
	valueRows  []float32  // channel panels of its values
	sums       []float32  // [attentionRoom,width]
	top, sum   []float32  // [attentionChunk]
}

func newForwardTask(v *variant, w *worker, h heads, scratch cutter) forwardTask {
	t := forwardTask{attentionTask: newAttentionTask(v, w, h, scratch)}
	t.queries = t.scratch.take(attentionRoom * t.D)
	if t.inPairs {
		t.weights = t.scratch.take(attentionRows * t.elements(attentionRoom))
	}
	t.keyColumns, t.valueRows = t.scratch.take(attentionRoom*t.D), t.scratch.take(attentionRoom*t.width)
	t.sums = t.scratch.take(attentionRoom * t.width)
	t.top, t.sum = t.scratch.take(attentionRoom), t.scratch.take(attentionRoom)
	return t
}

// run computes the task's rows of out and lse.
func (t *forwardTask) run() {
	t.copyFactors(t.queries, t.readable(t.queryRows(t.queryChunk), t.stride, t.rows), t.rows, t.toPowers())
	for r := range t.rows {
		t.top[r], t.sum[r] = float32(math.Inf(-1)), 0
	}
	keys, values := t.keys(t.b, t.head/t.group)
	first, end := t.sees(t.queryChunk)
	for key := first; key < end; key += attentionChunk {
		cols := min(attentionChunk, end-key)
		t.positionPanels(t.keyColumns, t.readable(keys.from(key*t.keyStride), t.keyStride, cols), cols)
		t.channelPanels(t.valueRows, t.readable(values.from(key*t.keyStride), t.keyStride, cols), cols)
		t.askAfter(key, end)
		for r := 0; r < t.rows; r += attentionRows {
			t.block(r, key, cols, key > first)
		}
	}
	at := t.row(t.b, t.head) + t.q
	if t.softmaxes != nil {
		for r := range t.rows {
			t.softmaxes[at+r] = softmax{t.top[r], t.sum[r]}
		}
		return
	}
	t.finish(t.out.from(t.heads.out(t.b, t.head) + t.q*t.outStride))
	for r := 0; t.lse != nil && r < t.rows; r++ { // in units of 1
		t.lse[at+r] = float32((float64(t.top[r]) + math.Log2(float64(t.sum[r]))) * math.Ln2)
	}
}

func (t *forwardTask) queryRows(c queryChunk) stored {
	return t.qkv.from(t.query(c.b, c.head) + c.q*t.stride)
}

// sees gives the keys that queries see, from the begin of a chunk.
func (t *forwardTask) sees(c queryChunk) (first, end int) {
	return t.first(c.b, c.q, c.rows) / attentionChunk * attentionChunk, t.past + c.q + c.rows
}

// askAfter asks for what comes after the chunk of keys from key on: the next one, or the next
// queries and their first chunk of keys.
func (t *forwardTask) askAfter(key, end int) {
	c := t.queryChunk
	key += attentionChunk
	t.w.ahead.clear()
	if key >= end {
		if c = t.next; c.rows == 0 {
			return
		}
		t.ask(t.queryRows(c), t.stride, c.rows)
		key, end = t.sees(c)
	}
	n := min(attentionChunk, end-key)
	keys, values := t.keys(c.b, c.head/t.group)
	t.ask(keys.from(key*t.keyStride), t.keyStride, n)
	t.ask(values.from(key*t.keyStride), t.keyStride, n)
}

// block runs attentionRows queries from row r on over the packed keys [key, key+cols).
func (t *forwardTask) block(r, key, cols int, accumulate bool) {
	rows := min(attentionRows, t.rows-r)
	before := t.past + t.q + r - key // keys that even the first row sees
	seen := min(cols, before+rows)
	if seen <= 0 {
		return
	}
	k := t.elements(t.D)
	t.multiply(blockProduct{
		of: pairsOut, before: before, rows: rows, cols: seen, k: t.D, a: t.queries[r*k:], aRow: k, aCol: 1,
		panels: t.keyColumns, panel: k * t.micro.nr, c: t.scores, cRow: attentionRoom,
	})
	for i := range rows {
		t.softmaxRow(r+i, i*attentionRoom, key, seen)
	}
	if t.softmaxes != nil {
		return
	}
	weights := t.scores
	if t.inPairs {
		weights = t.weights
	}
	t.multiply(blockProduct{
		of: keysSummed, before: before, rows: rows, cols: t.D, k: seen, a: weights, aRow: t.elements(attentionRoom), aCol: 1,
		panels: t.valueRows, panel: t.elements(cols) * t.micro.nr, c: t.sums[r*t.width:], cRow: t.width, accumulate: accumulate,
	})
}

// softmaxRow turns the scores of row r, which begin at `at`, into powers relative to the running maximum,
// zeros where it does not see a key, and rescales what was summed before.
func (t *forwardTask) softmaxRow(r, at, key, seen int) {
	from, to := t.visible(t.b, t.q+r, key, seen)
	scores, old := t.scores[at:at+seen], t.top[r]
	var top, sum float32
	if t.inPairs {
		weights := asHalves(t.weights)[at : at+roundUp(seen, 2)]
		clear(weights[:from])
		clear(weights[to:])
		if from == to {
			return
		}
		top, sum = t.v.softmaxHalves(weights[from:to], scores[from:to], t.toPowers(), old)
	} else {
		clear(scores[:from])
		clear(scores[to:])
		if from == to {
			return
		}
		top, sum = t.v.softmax(scores[from:to], old)
	}
	if old != top && t.sum[r] > 0 {
		shrink := exp2Generic(old - top)
		t.sum[r] *= shrink
		t.v.scale(t.sums[r*t.width:r*t.width+t.D], shrink)
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
		t.v.timesRows(out.wide, t.sums, t.outStride, t.width, t.D, factors)
		return
	}
	t.v.timesRows(t.room, t.sums, t.D, t.width, t.D, factors)
	for r := range t.rows {
		out.narrow(out.half[r*t.outStride:][:t.D], t.room[r*t.D:][:t.D])
	}
}
