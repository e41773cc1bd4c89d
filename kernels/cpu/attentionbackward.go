package cpu

import (
	"math"

	"pnode/kernels"
)

// attentionBackward runs in waves. A task has a chunk of keys of one key-value head and,
// in wave w, the chunk of queries w places later, of all query heads that share it; so no
// two tasks of a wave add to the same gradients. The last wave comes first: the gradient of a
// key grows from the last query to the first, in groups of attentionGroup, and that of a query
// from the first chunk of keys to the last. Passes over parts of the queries, the last part
// first, so make the very sums of one over all.
func (d *Device) attentionBackward(c kernels.Call) error {
	h := newHeads(c)
	h.bind(d.v, c.Args[3])
	if err := h.limit(ints(c.Args[6])); err != nil {
		return err
	}
	dry := cutter{dry: true}
	if err := d.pool.reserve(newBackwardTask(d.v, nil, h, dry).scratch.used); err != nil {
		return err
	}
	dqkv := d.v.elements(c.Args[0])
	sums, err := dqkv.wide, error(nil)
	if dqkv.half != nil {
		if sums, err = d.pool.common(len(dqkv.half)); err != nil {
			return err
		}
	}
	a := differentiated{
		dqkv: sums, delta: floats(c.Args[1]), dout: d.v.elements(c.Args[2]),
		qkv: d.v.elements(c.Args[3]), out: d.v.elements(c.Args[4]), lse: floats(c.Args[5]),
		adds: c.Flags&kernels.Accumulate != 0,
	}
	if a.softmaxes, err = d.largeSoftmaxes(h, a); err != nil {
		return err
	}
	d.differentiate(h, a)
	if dqkv.half != nil {
		d.ranges(len(sums), func(from, to int) { dqkv.narrow(dqkv.half[from:to], sums[from:to]) })
	}
	return nil
}

// largeScore is a size of lse from which probabilities are not computed from it: as a float it has an
// error of 2^-14 there, which is a factor of all probabilities of a query.
const largeScore = 1 << 10

// largeSoftmaxes computes the softmax of every query anew, as the forward pass did, where any has large
// scores; else it returns nil. A log of the sum of exponentials has no digits left for the sum at scores
// of 10^7.
func (d *Device) largeSoftmaxes(h heads, a differentiated) ([]softmax, error) {
	large := false
	for row := range h.B * h.H {
		for _, lse := range a.lse[row*h.T+h.from : row*h.T+h.to] {
			large = large || isLarge(lse)
		}
	}
	if !large {
		return nil, nil
	}
	all := make([]softmax, len(a.lse))
	return all, d.attend(h, attended{qkv: a.qkv, softmaxes: all, keys: func(b, kv int) (keys, values stored) {
		return a.qkv.from(h.key(b, kv)), a.qkv.from(h.value(b, kv))
	}})
}

func isLarge(lse float32) bool { return lse >= largeScore || lse <= -largeScore }

// differentiate runs the waves.
func (d *Device) differentiate(h heads, a differentiated) {
	first, last, each := h.from/attentionChunk, (h.to-1)/attentionChunk, h.B*h.K
	for wave := last; wave >= 0; wave-- {
		least := max(first, wave) // chunk of queries
		tasks := (last - least + 1) * each
		place := func(task int) (c chunkPair) {
			if task < tasks {
				chunk := least + task/each
				c.b, c.kv = task%each/h.K, task%each%h.K
				c.q, c.rows = h.chunk(chunk)
				c.key = (chunk - wave) * attentionChunk
				c.cols = min(attentionChunk, h.to-c.key)
				c.fresh = chunk == last && !a.adds
			}
			return c
		}
		d.pool.run(tasks, func(w *worker, task int) {
			t := newBackwardTask(d.v, w, h, cutter{rest: w.scratch})
			t.differentiated, t.chunkPair, t.next = a, place(task), place(d.pool.after(task))
			t.run()
		})
	}
}

// differentiated are the operands of a backward pass.
type differentiated struct {
	dqkv, delta, lse []float32
	dout, qkv, out   stored
	softmaxes        []softmax // [B,H,T]; nil where no query has large scores
	// adds reports that the gradients of keys and values have those of later queries.
	adds bool
}

// chunkPair is a chunk of queries, of all heads that share a key-value head, and one of keys.
type chunkPair struct {
	b, kv     int  // sequence, key-value head
	q, rows   int  // queries [q, q+rows)
	key, cols int  // keys [key, key+cols)
	fresh     bool // nothing has been added to the keys' gradients
}

// backwardTask computes what a chunk of queries and a chunk of keys add to the gradients.
type backwardTask struct {
	attentionTask
	differentiated
	chunkPair
	next          chunkPair // of the worker; without rows if there is none
	queries, grad []float32 // rows of Q and dOut, [attentionRows,D]
	slopes        []float32 // gradient of the scores, [attentionRows,attentionRoom]
	// In pairs these and the probabilities, along the keys, and a group of either along the queries.
	slopePairs, weightPairs []float32  // [attentionRows,attentionRoom]
	groupPairs              []float32  // [attentionGroup,attentionRoom]
	by                      [5]float32 // of a row's softmaxGradHalves

	keyColumns, valueColumns          []float32 // position panels of K and V
	keys, queryChannels, gradChannels []float32 // channel panels of K, Q and dOut
	dKey, dValue, dQuery              []float32 // [attentionRoom,width]
}

func newBackwardTask(v *variant, w *worker, h heads, scratch cutter) *backwardTask {
	t := &backwardTask{attentionTask: newAttentionTask(v, w, h, scratch)}
	take := t.scratch.take
	t.queries, t.grad = take(attentionRows*t.D), take(attentionRows*t.D)
	t.slopes = take(attentionRows * attentionRoom)
	if t.inPairs {
		room := t.elements(attentionRoom)
		t.slopePairs, t.weightPairs = take(attentionRows*room), take(attentionRows*room)
		t.groupPairs = take(t.elements(attentionGroup) * attentionRoom)
	}
	t.keyColumns, t.valueColumns = take(attentionRoom*t.D), take(attentionRoom*t.D)
	t.keys = take(attentionRoom * t.width)
	t.queryChannels, t.gradChannels = take(attentionRows*t.width), take(attentionRows*t.width)
	t.dKey, t.dValue = take(attentionRoom*t.width), take(attentionRoom*t.width)
	t.dQuery = take(attentionRoom * t.width)
	return t
}

func (t *backwardTask) run() {
	keys, values := t.keysAt(t.chunkPair)
	t.positionPanels(t.valueColumns, t.readable(t.qkv.from(values), t.stride, t.cols), t.cols)
	rows := t.readable(t.qkv.from(keys), t.stride, t.cols)
	t.positionPanels(t.keyColumns, rows, t.cols)
	t.channelPanels(t.keys, rows, t.cols)
	t.fetch(t.dKey, keys)
	t.fetch(t.dValue, values)
	for head := t.kv * t.group; head < (t.kv+1)*t.group; head++ {
		t.askAfter(head)
		for r := (t.rows - 1) / attentionRows * attentionRows; r >= 0; r -= attentionRows {
			t.block(head, r)
		}
		t.storeQueries(t.queriesAt(t.chunkPair, head))
	}
	t.storeKeys(keys, t.dKey)
	t.storeKeys(values, t.dValue)
}

// keysAt is where the keys and the values begin in qkv.
func (t *backwardTask) keysAt(c chunkPair) (keys, values int) {
	return t.heads.key(c.b, c.kv) + c.key*t.stride, t.heads.value(c.b, c.kv) + c.key*t.stride
}

// queriesAt is where the queries of a head begin in qkv.
func (t *backwardTask) queriesAt(c chunkPair, head int) int {
	return t.query(c.b, head) + c.q*t.stride
}

// outAt is where a head's output for the queries begins in out and dout.
func (t *backwardTask) outAt(c chunkPair, head int) int {
	return t.heads.out(c.b, head) + c.q*t.outStride
}

// askAfter asks for what every task reads after a head, the next one's queries or the next task's
// queries and keys, and then for the gradients that are written.
func (t *backwardTask) askAfter(head int) {
	c, next := t.chunkPair, head+1
	last := next == (t.kv+1)*t.group
	if last {
		c, next = t.next, t.next.kv*t.group
	}
	t.w.ahead.clear()
	if c.rows > 0 {
		t.ask(t.qkv.from(t.queriesAt(c, next)), t.stride, c.rows)
		out := t.outAt(c, next)
		t.ask(t.dout.from(out), t.outStride, c.rows)
		if c.key == 0 { // for its deltas
			t.ask(t.differentiated.out.from(out), t.outStride, c.rows)
		}
		if last {
			keys, values := t.keysAt(c)
			t.ask(t.qkv.from(keys), t.stride, c.cols)
			t.ask(t.qkv.from(values), t.stride, c.cols)
		}
	}
	t.ask(stored{wide: t.dqkv[t.queriesAt(t.chunkPair, head):]}, t.stride, t.rows)
	if last {
		keys, values := t.keysAt(t.chunkPair)
		t.ask(stored{wide: t.dqkv[keys:]}, t.stride, t.cols)
		t.ask(stored{wide: t.dqkv[values:]}, t.stride, t.cols)
	}
}

// fetch begins the sums of a gradient of the keys with what dqkv has of it.
func (t *backwardTask) fetch(sums []float32, at int) {
	if t.fresh || t.D < t.width {
		clear(sums)
	}
	if !t.fresh {
		t.v.timesRows(sums, t.dqkv[at:], t.width, t.stride, t.D, t.same(t.cols, 1))
	}
}

// storeKeys writes the sums of a gradient of the keys to dqkv.
func (t *backwardTask) storeKeys(at int, sums []float32) {
	t.copyTimes(t.dqkv[at:], sums, t.stride, t.width, t.cols, 1)
}

// storeQueries adds the gradients of the queries to dqkv; the first chunk of keys overwrites.
func (t *backwardTask) storeQueries(at int) {
	put := t.v.axpyRows
	if t.key == 0 {
		put = t.v.timesRows
	}
	factor := t.scale
	if t.inPairs { // it is in the slopes
		factor = 1
	}
	put(t.dqkv[at:], t.dQuery, t.stride, t.width, t.D, t.same(t.rows, factor))
}

// block handles attentionRows queries of a head from row r of the chunk on.
func (t *backwardTask) block(head, r int) {
	rows := min(attentionRows, t.rows-r)
	before := t.q + r - t.key // keys that even the first row sees
	seen := min(t.cols, before+rows)
	if t.key == 0 {
		t.sumDeltas(head, r, rows)
	}
	if t.first(t.b, t.q+r, rows) >= t.key+seen {
		clear(t.dQuery[r*t.width : (r+rows)*t.width])
		return
	}
	t.load(head, r, rows)
	k, slopes := t.elements(t.D), t.slopes
	scores := blockProduct{
		of: pairsOut, before: before, rows: rows, cols: seen, k: t.D, a: t.queries, aRow: k, aCol: 1,
		panels: t.keyColumns, panel: k * t.micro.nr, c: t.scores, cRow: attentionRoom,
	}
	t.multiply(scores)
	scores.a, scores.panels, scores.c = t.grad, t.valueColumns, t.slopes
	t.multiply(scores)
	t.differentiate(head, r, rows, seen)
	if t.inPairs {
		slopes = t.slopePairs
	}
	for group := (rows - 1) / attentionGroup * attentionGroup; group >= 0; group -= attentionGroup {
		t.sumGroup(group, rows, before, seen)
	}
	t.multiply(blockProduct{ // dQ = dS K
		of: keysSummed, before: before, rows: rows, cols: t.D, k: seen, a: slopes, aRow: t.elements(attentionRoom), aCol: 1,
		panels: t.keys, panel: t.elements(t.cols) * t.micro.nr, c: t.dQuery[r*t.width:], cRow: t.width,
	})
}

// sumGroup adds the queries [group, group+attentionGroup) of a block of rows to the gradients of
// the keys.
func (t *backwardTask) sumGroup(group, rows, before, seen int) {
	n, before, at := min(attentionGroup, rows-group), before+group, t.elements(group)*t.micro.nr
	transposed := blockProduct{ // dV += P' dOut
		of: queriesSummed, before: before, rows: min(seen, before+n), cols: t.D, k: n, a: t.alongQueries(t.scores, t.weightPairs, group, n, seen), aRow: 1, aCol: attentionRoom,
		panels: t.gradChannels[at:], panel: t.elements(rows) * t.micro.nr, c: t.dValue, cRow: t.width, accumulate: true,
	}
	t.multiply(transposed)
	transposed.a, transposed.panels, transposed.c = t.alongQueries(t.slopes, t.slopePairs, group, n, seen), t.queryChannels[at:], t.dKey
	t.multiply(transposed) // dK += dS' Q
}

// alongQueries gives the n rows of a group for products that contract over queries: floats as they are,
// or what is in pairs of neighbours in a row as pairs of neighbours in a column.
func (t *backwardTask) alongQueries(floats, pairs []float32, group, n, seen int) []float32 {
	if !t.inPairs {
		return floats[group*attentionRoom:]
	}
	halves, nr := asHalves(pairs), t.micro.nr
	panels := min(blocks(roundUp(seen, t.micro.mr), nr), attentionRoom/nr) // whole tiles, but no keys behind the chunk
	for i := 0; i < n; i += 2 {
		t.micro.pairB(t.groupPairs[i/2*attentionRoom:], halves[(group+i)*attentionRoom:], nr, attentionRoom, 1, panels)
	}
	return t.groupPairs
}

// load copies the block's rows of Q and dOut and packs them. Q is packed without log2(e): the
// slopes are of scores in units of 1.
func (t *backwardTask) load(head, r, rows int) {
	queries := t.readable(t.qkv.from(t.queriesAt(t.chunkPair, head)+r*t.stride), t.stride, rows)
	t.copyFactors(t.queries, queries, rows, t.scale)
	t.channelPanels(t.queryChannels, t.copied(t.queries), rows)
	if !t.inPairs {
		t.copyFactors(t.queries, queries, rows, t.toPowers())
	}
	grad := t.readable(t.dout.from(t.outAt(t.chunkPair, head)+r*t.outStride), t.outStride, rows)
	t.copyFactors(t.grad, grad, rows, 1)
	t.channelPanels(t.gradChannels, t.copied(t.grad), rows)
}

// sumDeltas computes the products of the block's rows of dOut and out.
func (t *backwardTask) sumDeltas(head, r, rows int) {
	at, delta := t.outAt(t.chunkPair, head)+r*t.outStride, t.delta[t.heads.row(t.b, head)+t.q+r:]
	dout := t.widened(t.room, t.dout.from(at), t.outStride, rows)
	out := t.widened(t.room[attentionRows*t.D:], t.differentiated.out.from(at), t.outStride, rows)
	t.v.dotRows(delta[:rows], dout.wide, out.wide, dout.stride, out.stride, t.D)
}

// differentiate turns scores into P and the gradient of P into that of the scores, with
// zeros where a query does not see a key, up to whole tiles.
func (t *backwardTask) differentiate(head, r, rows, seen int) {
	if t.inPairs {
		t.differentiatePairs(head, r, rows, seen)
		return
	}
	padded := t.padded(seen)
	for i := range rows {
		from, to := t.visible(t.b, t.q+r+i, t.key, seen)
		p, dp := t.scores[i*attentionRoom:][:padded], t.slopes[i*attentionRoom:][:padded]
		at := t.heads.row(t.b, head) + t.q + r + i
		if t.softmaxes != nil && isLarge(t.lse[at]) {
			of := t.softmaxes[at]
			t.v.softmaxGrad(p[from:to], dp[from:to], of.top, t.delta[at])
			t.v.scale(p[from:to], 1/of.sum)
			t.v.scale(dp[from:to], 1/of.sum)
		} else {
			t.v.softmaxGrad(p[from:to], dp[from:to], t.lse[at]*math.Log2E, t.delta[at])
		}
		clear(p[:from])
		clear(dp[:from])
		clear(p[to:])
		clear(dp[to:])
	}
}

// differentiatePairs is differentiate for products in pairs. The gradients of the scores get the factor of
// the scores, since queries and keys are multiplied without one. A last query without a neighbour gets one of zeros.
func (t *backwardTask) differentiatePairs(head, r, rows, seen int) {
	padded, weights, slopes := t.padded(seen), asHalves(t.weightPairs), asHalves(t.slopePairs)
	for i := range roundUp(rows, 2) {
		from, to := 0, 0
		row := i * attentionRoom
		p, dp := weights[row:row+padded], slopes[row:row+padded]
		if i < rows {
			from, to = t.visible(t.b, t.q+r+i, t.key, seen)
			at := t.heads.row(t.b, head) + t.q + r + i
			t.by = [...]float32{t.toPowers(), t.lse[at] * math.Log2E, 1, t.delta[at], t.scale}
			if t.softmaxes != nil && isLarge(t.lse[at]) {
				t.by[1], t.by[2] = t.softmaxes[at].top, 1/t.softmaxes[at].sum
			}
			t.v.softmaxGradHalves(p[from:to], dp[from:to], t.scores[row+from:row+to], t.slopes[row+from:row+to], &t.by)
		}
		clear(p[:from])
		clear(dp[:from])
		clear(p[to:])
		clear(dp[to:])
	}
}

// padded is up to where rows of probabilities are read.
func (t *backwardTask) padded(seen int) int {
	return max(roundUp(seen, t.micro.mr), roundUp(seen, t.micro.nr))
}
