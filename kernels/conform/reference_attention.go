package conform

import (
	"math"
	"math/rand/v2"

	"pnode/kernels"
)

// starts draws the first key that each query sees, from all that it may.
func starts(rng *rand.Rand, c kernels.Call, x []float64) {
	past := 0
	if c.Op == kernels.OpAttentionCached {
		past = c.Dims[5]
	}
	for i := range x {
		last := past + i%c.Dims[1] // the query's own position
		x[i] = float64(rng.IntN(last + 1))
	}
}

func prepareAttentionBackward(rng *rand.Rand, c kernels.Call, args [][]float64) {
	starts(rng, c, args[6])
	c.Op = kernels.OpAttentionForward // of all queries
	attentionForward(c, [][]float64{args[4], args[5], args[3], args[6]})
}

// softmax replaces scores by their softmax and gives the log of the sum of exponentials.
func softmax(scores []float64) float64 {
	top, sum := math.Inf(-1), 0.0
	for _, s := range scores {
		top = math.Max(top, s)
	}
	for i, s := range scores {
		scores[i] = math.Exp(s - top)
		sum += scores[i]
	}
	for i := range scores {
		scores[i] /= sum
	}
	return top + math.Log(sum)
}

// scoreRow is q*k/sqrt(D) for the keys from `from` to `to`, both included.
func scoreRow(q []float64, key func(pos int) []float64, from, to int) []float64 {
	scores := make([]float64, to-from+1)
	for i := range scores {
		for d, k := range key(from + i)[:len(q)] {
			scores[i] += q[d] * k
		}
		scores[i] /= math.Sqrt(float64(len(q)))
	}
	return scores
}

// query is one query position of one head.
type query struct {
	b, head, pos int
	first        int // the first key it sees
	at           func(pos, head int) int
}

// partial reports whether an op takes some of the queries alone.
func partial(op kernels.Op) bool {
	return op == kernels.OpAttentionForwardPart || op == kernels.OpAttentionBackwardPart
}

// queries calls f for each query that the call takes. query.at gives the place of channel 0 of a head at a
// position of the sequence in qkv.
func queries(c kernels.Call, starts []float64, f func(x query)) {
	nb, nt, nh, nk, nd := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
	for b := range nb {
		at := func(pos, head int) int { return ((b*nt+pos)*(nh+2*nk) + head) * nd }
		for head := range nh {
			for pos := range nt {
				if from := c.Dims[5]; partial(c.Op) && (pos < from || pos >= from+c.Dims[6]) {
					continue
				}
				x := query{b: b, head: head, pos: pos, at: at}
				if starts != nil {
					x.first = int(starts[b*nt+pos])
				}
				f(x)
			}
		}
	}
}

func attentionForward(c kernels.Call, args [][]float64) {
	out, lse, qkv := args[0], args[1], args[2]
	nt, nh, nk, nd := c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
	queries(c, args[3], func(x query) {
		kv := x.head / (nh / nk)
		key := func(pos int) []float64 { return qkv[x.at(pos, nh+kv):] }
		weights := scoreRow(qkv[x.at(x.pos, x.head):][:nd], key, x.first, x.pos)
		lse[(x.b*nh+x.head)*nt+x.pos] = softmax(weights)
		row := out[((x.b*nt+x.pos)*nh+x.head)*nd:][:nd]
		clear(row)
		for i, w := range weights {
			for d, v := range qkv[x.at(x.first+i, nh+nk+kv):][:nd] {
				row[d] += w * v
			}
		}
	})
}

func attentionBackward(c kernels.Call, args [][]float64) {
	dqkv, dout, qkv, out, lse := args[0], args[2], args[3], args[4], args[5]
	nt, nh, nk, nd := c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
	clearGradients(c, dqkv)
	queries(c, args[6], func(x query) {
		kv := x.head / (nh / nk)
		key := func(pos int) []float64 { return qkv[x.at(pos, nh+kv):] }
		weights := scoreRow(qkv[x.at(x.pos, x.head):][:nd], key, x.first, x.pos)
		row := ((x.b*nt+x.pos)*nh + x.head) * nd
		g := dout[row:][:nd]
		slopes, mean := make([]float64, len(weights)), 0.0
		for d, v := range out[row:][:nd] { // as it is stored
			mean += v * g[d]
		}
		for i, score := range weights {
			w := math.Exp(score - lse[(x.b*nh+x.head)*nt+x.pos])
			weights[i] = w
			v := x.at(x.first+i, nh+nk+kv)
			for d := range g {
				slopes[i] += g[d] * qkv[v+d]
				dqkv[v+d] += w * g[d]
			}
		}
		q := x.at(x.pos, x.head)
		for i, w := range weights {
			slope := w * (slopes[i] - mean) / math.Sqrt(float64(nd))
			k := x.at(x.first+i, nh+kv)
			for d := range g {
				dqkv[q+d] += slope * qkv[k+d]
				dqkv[k+d] += slope * qkv[q+d]
			}
		}
	})
}

// clearGradients clears what a backward pass overwrites of dqkv.
func clearGradients(c kernels.Call, dqkv []float64) {
	if !partial(c.Op) {
		clear(dqkv)
		return
	}
	nt, heads, nh, nd := c.Dims[1], c.Dims[2]+2*c.Dims[3], c.Dims[2], c.Dims[4]
	for row := range c.Dims[0] * nt {
		at, end := row*heads*nd, c.Dims[5]+c.Dims[6]
		if pos := row % nt; pos >= c.Dims[5] && pos < end {
			clear(dqkv[at : at+nh*nd])
		}
		if row%nt < end && c.Flags&kernels.Accumulate == 0 {
			clear(dqkv[at+nh*nd : at+heads*nd])
		}
	}
}

func attentionCached(c kernels.Call, args [][]float64) {
	out, cache, qkv := args[0], args[1], args[2]
	nt, nh, nk, nd, past, room := c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5], c.Dims[6]
	cached := func(b, pos, head int) []float64 { return cache[((b*room+pos)*2*nk+head)*nd:][:nd] }
	for row := range c.Dims[0] * nt {
		for head := range 2 * nk {
			copy(cached(row/nt, past+row%nt, head), qkv[(row*(nh+2*nk)+nh+head)*nd:])
		}
	}
	queries(c, args[3], func(x query) {
		kv := x.head / (nh / nk)
		key := func(pos int) []float64 { return cached(x.b, pos, kv) }
		weights := scoreRow(qkv[x.at(x.pos, x.head):][:nd], key, x.first, past+x.pos)
		softmax(weights)
		row := out[((x.b*nt+x.pos)*nh+x.head)*nd:][:nd]
		clear(row)
		for i, w := range weights {
			for d, v := range cached(x.b, x.first+i, nk+kv) {
				row[d] += w * v
			}
		}
	})
}

// angles fills the tables with the cosines and sines of RoPE for theta 10,000.
func angles(c kernels.Call, cos, sin []float64) {
	half := c.Dims[3] / 2
	for i := range cos {
		pos, pair := i/half, i%half
		angle := float64(pos) * math.Pow(10000, -float64(pair)/float64(half))
		cos[i], sin[i] = math.Cos(angle), math.Sin(angle)
	}
}

func rope(c kernels.Call, args [][]float64) {
	x, cos, sin := args[0], args[1], args[2]
	n, t, heads, d, width, start := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4], c.Dims[5]
	for row := range n {
		pos := start + row%t
		for head := range heads {
			for i := range d / 2 {
				cosine, sine := cos[pos*d/2+i], sin[pos*d/2+i]
				if c.Flags&kernels.Inverse != 0 {
					sine = -sine
				}
				low, high := &x[row*width+head*d+i], &x[row*width+head*d+d/2+i]
				*low, *high = *low*cosine-*high*sine, *high*cosine+*low*sine
			}
		}
	}
}
