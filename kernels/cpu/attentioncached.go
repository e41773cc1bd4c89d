package cpu

import (
	"math"

	"pnode/kernels"
)

// fewQueries is the number of new positions up to which keys and values are read where they
// are: packing a key costs about as much as its products with four queries.
const fewQueries = 4

// attentionCached appends to the cache, rows of all keys and then all values, and attends
// over it.
func (d *Device) attentionCached(c kernels.Call) error {
	out, cache, qkv := floats(c.Args[0]), floats(c.Args[1]), floats(c.Args[2])
	h := newHeads(c)
	h.past, h.keyStride = c.Dims[5], 2*h.K*h.D
	room := c.Dims[6] * h.keyStride
	if err := h.limit(ints(c.Args[3])); err != nil {
		return err
	}
	d.rows(h.B*h.T, h.keyStride, func(from, to int) {
		for row := from; row < to; row++ {
			at := row/h.T*room + (h.past+row%h.T)*h.keyStride
			copy(cache[at:at+h.keyStride], qkv[row*h.stride+h.H*h.D:])
		}
	})
	a := attended{out: stored{wide: out}, qkv: stored{wide: qkv}, keys: func(b, kv int) (keys, values stored) {
		keys = stored{wide: cache[b*room+kv*h.D:]}
		return keys, keys.from(h.K * h.D)
	}}
	if h.T > fewQueries {
		return d.attend(h, a)
	}
	return d.attendFew(h, a)
}

// attendFew runs a task for each key-value head and chunk of keys, whose results for a
// query are then put together in the order of the chunks.
func (d *Device) attendFew(h heads, a attended) error {
	chunks := blocks(h.past+h.T, attentionChunk)
	size := scratchSize(h.D + 2) // of a partial result: output, maximum, sum
	partial, err := d.pool.common(h.B * h.H * h.T * chunks * size)
	if err != nil {
		return err
	}
	if err := d.pool.reserve(scratchSize(h.D) + scratchSize(attentionChunk) + scratchSize(1)); err != nil {
		return err
	}
	results := func(b, head, t int) []float32 {
		return partial[((b*h.H+head)*h.T+t)*chunks*size:][:chunks*size]
	}
	d.pool.run(h.B*h.K*chunks, func(w *worker, task int) {
		b, kv, key := task/chunks/h.K, task/chunks%h.K, task%chunks*attentionChunk
		f := fewTask{heads: h, v: d.v, key: key, scratch: cutter{rest: w.scratch}}
		f.query, f.scores, f.factor = f.scratch.take(h.D), f.scratch.take(attentionChunk), f.scratch.take(1)
		f.factor[0] = h.scale * math.Log2E
		keys, values := a.keys(b, kv)
		f.keys, f.values = keys.wide[key*h.keyStride:], values.wide[key*h.keyStride:]
		for head := kv * h.group; head < (kv+1)*h.group; head++ {
			for t := range h.T {
				f.run(results(b, head, t)[task%chunks*size:][:h.D+2], a.qkv.wide[h.query(b, head)+t*h.stride:][:h.D], b, t)
			}
		}
	})
	d.rows(h.B*h.H*h.T, h.D*chunks, func(from, to int) {
		for i := from; i < to; i++ {
			b, head, t := i/h.T/h.H, i/h.T%h.H, i%h.T
			d.v.join(a.out.wide[h.out(b, head)+t*h.outStride:][:h.D], results(b, head, t), size)
		}
	})
	return nil
}

// fewTask is a chunk of keys and values of one head where they lie.
type fewTask struct {
	heads
	v             *variant
	scratch       cutter
	key           int // first of the chunk
	keys, values  []float32
	query, scores []float32
	factor        []float32 // of queries: makes scores powers of 2
}

// run writes one query's sum over the chunk of 2^(score-top)*value, then top and the sum of
// the powers: minus infinity and 0 where the query sees no key.
func (f *fewTask) run(result, query []float32, b, t int) {
	out := result[:f.D]
	clear(out)
	result[f.D], result[f.D+1] = float32(math.Inf(-1)), 0
	from, to := f.visible(b, t, f.key, attentionChunk)
	if from >= to {
		return
	}
	f.v.timesRows(f.query, query, f.D, f.D, f.D, f.factor)
	scores := f.scores[:to-from]
	f.v.dotRows(scores, f.query, f.keys[from*f.keyStride:], 0, f.keyStride, f.D)
	result[f.D], result[f.D+1] = f.v.softmax(scores, result[f.D])
	f.v.weighted(out, scores, f.values[from*f.keyStride:], f.keyStride)
}

// join writes the output of a query from the results of its chunks, `size` floats apart.
func (v *variant) join(out, results []float32, size int) {
	n := len(out)
	top, sum := float32(math.Inf(-1)), float32(0)
	for i := 0; i < len(results); i += size {
		top = max(top, results[i+n])
	}
	clear(out)
	for i := 0; i < len(results); i += size {
		weight := exp2Generic(results[i+n] - top)
		if results[i+n+1] == 0 {
			continue
		}
		v.axpy(out, results[i:i+n], weight)
		sum += results[i+n+1] * weight
	}
	v.scale(out, 1/sum)
}
