package cpu

import (
	"math"

	"pnode/kernels"
)

// attentionBackward runs in waves. A task has a chunk of keys of one key-value head and,
// in wave w, the chunk of queries w places later, of all query heads that share it; so no
// two tasks of a wave add to the same gradients, and each gradient grows in the order of
// the waves.
func (d *Device) attentionBackward(c kernels.Call) error {
	h := newHeads(c)
	if err := h.limit(ints(c.Args[6])); err != nil {
		return err
	}
	dry := cutter{dry: true}
	if err := d.pool.reserve(newBackwardTask(d.v, nil, h, dry).scratch.used); err != nil {
		return err
	}
	a := differentiated{
		dqkv: floats(c.Args[0]), delta: floats(c.Args[1]), dout: floats(c.Args[2]),
		qkv: floats(c.Args[3]), out: floats(c.Args[4]), lse: floats(c.Args[5]),
	}
	chunks, each := blocks(h.T, attentionChunk), h.B*h.K
	for wave := range chunks {
		d.pool.run((chunks-wave)*each, func(w *worker, task int) {
			t := newBackwardTask(d.v, w, h, cutter{rest: w.scratch})
			t.wave, t.differentiated = wave, a
			t.b, t.kv, t.key = task%each/h.K, task%each%h.K, task/each*attentionChunk
			t.q = t.key + wave*attentionChunk
			t.cols, t.rows = min(attentionChunk, h.T-t.key), min(attentionChunk, h.T-t.q)
			t.run()
		})
	}
	return nil
}

// differentiated are the operands of a backward pass.
type differentiated struct{ dqkv, delta, dout, qkv, out, lse []float32 }

// backwardTask computes what a chunk of queries and a chunk of keys add to the gradients.
type backwardTask struct {
	attentionTask
	differentiated
	wave          int
	b, kv         int       // sequence, key-value head
	q, rows       int       // queries [q, q+rows)
	key, cols     int       // keys [key, key+cols)
	queries, grad []float32 // rows of Q and dOut, [attentionRows,D]
	slopes        []float32 // gradient of the scores, [attentionRows,attentionRoom]

	keyColumns, valueColumns          []float32 // position panels of K and V
	keys, queryChannels, gradChannels []float32 // channel panels of K, Q and dOut
	dKey, dValue, dQuery              []float32 // [attentionRoom,width]
}

func newBackwardTask(v *variant, w *worker, h heads, scratch cutter) *backwardTask {
	t := &backwardTask{attentionTask: newAttentionTask(v, w, h, scratch)}
	take := t.scratch.take
	t.queries, t.grad = take(attentionRows*t.D), take(attentionRows*t.D)
	t.slopes = take(attentionRows * attentionRoom)
	t.keyColumns, t.valueColumns = take(attentionRoom*t.D), take(attentionRoom*t.D)
	t.keys = take(attentionRoom * t.width)
	t.queryChannels, t.gradChannels = take(attentionRows*t.width), take(attentionRows*t.width)
	t.dKey, t.dValue = take(attentionRoom*t.width), take(attentionRoom*t.width)
	t.dQuery = take(attentionRoom * t.width)
	return t
}

func (t *backwardTask) run() {
	keys, values := t.heads.key(t.b, t.kv)+t.key*t.stride, t.heads.value(t.b, t.kv)+t.key*t.stride
	t.positionPanels(t.keyColumns, t.qkv[keys:], t.stride, t.cols)
	t.positionPanels(t.valueColumns, t.qkv[values:], t.stride, t.cols)
	t.channelPanels(t.keys, t.qkv[keys:], t.stride, t.cols)
	clear(t.dKey)
	clear(t.dValue)
	for head := t.kv * t.group; head < (t.kv+1)*t.group; head++ {
		for r := 0; r < t.rows; r += attentionRows {
			t.block(head, r)
		}
		t.store(t.heads.query(t.b, head)+t.q*t.stride, t.dQuery, t.rows, t.scale)
	}
	t.store(keys, t.dKey, t.cols, math.Ln2) // the queries had the scale and log2(e)
	t.store(values, t.dValue, t.cols, 1)
}

// store adds rows of a gradient times s to dqkv at `at`; the first wave overwrites.
func (t *backwardTask) store(at int, grad []float32, rows int, s float32) {
	for r := range rows {
		dst, src := t.dqkv[at+r*t.stride:][:t.D], grad[r*t.width:r*t.width+t.D]
		if t.wave == 0 {
			t.v.times(dst, src, s)
		} else {
			t.v.axpy(dst, src, s)
		}
	}
}

// block handles attentionRows queries of a head from row r of the chunk on.
func (t *backwardTask) block(head, r int) {
	rows := min(attentionRows, t.rows-r)
	before := t.q + r - t.key // keys that even the first row sees
	seen := min(t.cols, before+rows)
	if t.first(t.b, t.q+r, rows) >= t.key+seen {
		clear(t.dQuery[r*t.width : (r+rows)*t.width])
		return
	}
	t.load(head, r, rows)
	scores := blockProduct{
		of: pairsOut, before: before, rows: rows, cols: seen, k: t.D, a: t.queries, aRow: t.D, aCol: 1,
		panels: t.keyColumns, panel: t.D * t.v.nr, c: t.scores, cRow: attentionRoom,
	}
	t.multiply(scores)
	scores.a, scores.panels, scores.c = t.grad, t.valueColumns, t.slopes
	t.multiply(scores)
	t.differentiate(head, r, rows, seen)
	transposed := blockProduct{ // dV += P' dOut
		of: queriesSummed, before: before, rows: seen, cols: t.D, k: rows, a: t.scores, aRow: 1, aCol: attentionRoom,
		panels: t.gradChannels, panel: rows * t.v.nr, c: t.dValue, cRow: t.width, accumulate: true,
	}
	t.multiply(transposed)
	transposed.a, transposed.panels, transposed.c = t.slopes, t.queryChannels, t.dKey
	t.multiply(transposed)   // dK += dS' Q
	t.multiply(blockProduct{ // dQ = dS K
		of: keysSummed, before: before, rows: rows, cols: t.D, k: seen, a: t.slopes, aRow: attentionRoom, aCol: 1,
		panels: t.keys, panel: t.cols * t.v.nr, c: t.dQuery[r*t.width:], cRow: t.width,
	})
}

// load copies the block's rows of Q and dOut and packs them. In the first wave it computes
// delta, the products of the rows of dOut and out.
func (t *backwardTask) load(head, r, rows int) {
	t.copyQueries(t.queries, t.qkv[t.heads.query(t.b, head)+(t.q+r)*t.stride:], rows)
	t.channelPanels(t.queryChannels, t.queries, t.D, rows)
	at := t.heads.out(t.b, head) + (t.q+r)*t.outStride
	for i := range rows {
		row := t.dout[at+i*t.outStride:][:t.D]
		copy(t.grad[i*t.D:], row)
		if t.wave == 0 {
			t.delta[t.heads.row(t.b, head)+t.q+r+i] = t.v.dot(row, t.differentiated.out[at+i*t.outStride:][:t.D])
		}
	}
	t.channelPanels(t.gradChannels, t.grad, t.D, rows)
}

// differentiate turns scores into P and the gradient of P into that of the scores, with
// zeros where a query does not see a key, up to whole tiles.
func (t *backwardTask) differentiate(head, r, rows, seen int) {
	padded := max(roundUp(seen, t.v.mr), roundUp(seen, t.v.nr))
	for i := range rows {
		from, to := t.visible(t.b, t.q+r+i, t.key, seen)
		p, dp := t.scores[i*attentionRoom:][:padded], t.slopes[i*attentionRoom:][:padded]
		at := t.heads.row(t.b, head) + t.q + r + i
		t.v.softmaxGrad(p[from:to], dp[from:to], t.lse[at]*math.Log2E, t.delta[at])
		clear(p[:from])
		clear(dp[:from])
		clear(p[to:])
		clear(dp[to:])
	}
}
