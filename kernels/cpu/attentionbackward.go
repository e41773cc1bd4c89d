package cpu

import "pnode/kernels"

// backwardTask computes the gradients of one key-value head and its query heads.
type backwardTask struct {
	attentionTask
	b      int       // sequence
	slopes []float32 // [block,block]: gradient of the scores

	keyColumns, valueColumns []float32 // key panels of K and V
	keys, queries, douts     []float32 // channel panels of K, Q and dOut
	dKey, dValue             []float32 // [T rounded up to tiles,width]
	dQuery                   []float32 // [block,width]
}

// gradientRows is the number of rows of dKey and dValue: each block writes whole tiles.
func (h *heads) gradientRows(v *variant) int { return roundUp(h.T, v.block()) }

func (h *heads) backwardScratch(v *variant) int {
	width := roundUp(h.D, v.nr)
	return h.taskScratch(v) + scratchSize(v.block()*v.block()) + 2*scratchSize(h.keyPanelSize(v)) +
		3*scratchSize(h.channelPanelSize(v)) + 2*scratchSize(h.gradientRows(v)*width) + scratchSize(v.block()*width)
}

func newBackwardTask(v *variant, w *worker, h heads) *backwardTask {
	t := &backwardTask{attentionTask: newAttentionTask(v, w, h)}
	t.slopes = t.scratch.take(t.block * t.block)
	t.keyColumns, t.valueColumns = t.scratch.take(h.keyPanelSize(v)), t.scratch.take(h.keyPanelSize(v))
	t.keys, t.queries = t.scratch.take(h.channelPanelSize(v)), t.scratch.take(h.channelPanelSize(v))
	t.douts = t.scratch.take(h.channelPanelSize(v))
	t.dKey, t.dValue = t.scratch.take(h.gradientRows(v)*t.width), t.scratch.take(h.gradientRows(v)*t.width)
	t.dQuery = t.scratch.take(t.block * t.width)
	clear(t.dKey)
	clear(t.dValue)
	return t
}

// queryHead is one query head's rows of the operands, from its position 0 on.
type queryHead struct{ query, dQuery, dout, out, lse, delta []float32 }

func (d *Device) attentionBackward(c kernels.Call) error {
	dqkv, delta, dout := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2])
	qkv, out, lse := floats(c.Args[3]), floats(c.Args[4]), floats(c.Args[5])
	h := newHeads(c)
	if err := h.limit(ints(c.Args[6])); err != nil {
		return err
	}
	if err := d.pool.reserve(h.backwardScratch(d.v)); err != nil {
		return err
	}
	d.pool.run(h.B*h.K, func(w *worker, task int) {
		b, kv := task/h.K, task%h.K
		t := newBackwardTask(d.v, w, h)
		t.b = b
		key, value := h.key(b, kv), h.value(b, kv)
		t.keyPanels(t.keyColumns, qkv[key:], h.stride)
		t.keyPanels(t.valueColumns, qkv[value:], h.stride)
		t.channelPanels(t.keys, qkv[key:], h.stride)
		for head := kv * h.group; head < (kv+1)*h.group; head++ {
			t.head(queryHead{
				query: qkv[h.query(b, head):], dQuery: dqkv[h.query(b, head):],
				dout: dout[h.out(b, head):], out: out[h.out(b, head):],
				lse: lse[h.row(b, head):], delta: delta[h.row(b, head):],
			})
		}
		t.store(dqkv[key:], t.dKey, t.T)
		t.store(dqkv[value:], t.dValue, t.T)
	})
	return nil
}

// store copies rows [rows,D] of a gradient to their places in dqkv.
func (t *backwardTask) store(dst, grad []float32, rows int) {
	for r := range rows {
		copy(dst[r*t.stride:r*t.stride+t.D], grad[r*t.width:])
	}
}

// head adds one query head's share to dKey and dValue and writes its dQuery.
func (t *backwardTask) head(x queryHead) {
	t.channelPanels(t.queries, x.query, t.stride)
	t.channelPanels(t.douts, x.dout, t.outStride)
	for r := range t.T {
		at := r * t.outStride
		x.delta[r] = t.v.dot(x.dout[at:at+t.D], x.out[at:at+t.D])
	}
	for q := 0; q < t.T; q += t.block {
		rows := min(t.block, t.T-q)
		clear(t.dQuery)
		for key := 0; key < q+rows; key += t.block {
			t.tile(&x, q, key)
		}
		t.store(x.dQuery[q*t.stride:], t.dQuery, rows)
	}
}

// tile handles the scores of the queries from q on and the keys from key on.
func (t *backwardTask) tile(x *queryHead, q, key int) {
	rows, cols := min(t.block, t.T-q), min(t.block, t.T-key)
	scores := tileProduct{
		rows: rows, cols: cols, k: t.D, a: x.query[q*t.stride:], aRow: t.stride, aCol: 1, guard: true,
		panels: t.keyColumns[key*t.D:], c: t.scores, cRow: t.block, lowerOnly: key == q,
	}
	t.product(scores)
	scores.a, scores.aRow = x.dout[q*t.outStride:], t.outStride
	scores.panels, scores.c = t.valueColumns[key*t.D:], t.slopes
	t.product(scores)
	for r := range rows {
		from, to := t.visible(t.b, q+r, key, cols)
		p, dp := t.scores[r*t.block:(r+1)*t.block], t.slopes[r*t.block:(r+1)*t.block]
		t.v.exp(p[from:to], p[from:to], t.scale, x.lse[q+r])
		t.v.softmaxGrad(dp[from:to], p[from:to], x.delta[q+r], t.scale)
		clear(p[:from])
		clear(dp[:from])
		clear(p[to:])
		clear(dp[to:])
	}
	t.product(tileProduct{ // dV += P' dOut
		rows: cols, cols: t.D, k: rows, a: t.scores, aRow: 1, aCol: t.block,
		panels: t.douts[q*t.width:], c: t.dValue[key*t.width:], cRow: t.width, accumulate: true,
	})
	t.product(tileProduct{ // dK += dS' Q
		rows: cols, cols: t.D, k: rows, a: t.slopes, aRow: 1, aCol: t.block,
		panels: t.queries[q*t.width:], c: t.dKey[key*t.width:], cRow: t.width, accumulate: true,
	})
	t.product(tileProduct{ // dQ += dS K
		rows: rows, cols: t.D, k: cols, a: t.slopes, aRow: t.block, aCol: 1,
		panels: t.keys[key*t.width:], c: t.dQuery, cRow: t.width, accumulate: true,
	})
}
