package conform

import (
	"math"

	"pnode/kernels"
)

const defaultEps = 1e-5

// moments computes mean and 1/deviation of the rows of x [N,C].
func moments(c kernels.Call, x, mean, rstd []float64) {
	n, width := c.Dims[0], c.Dims[1]
	eps := defaultEps
	if c.Op == kernels.OpLayerNormForward {
		eps = float64(c.Scalars[0])
	}
	for i := range n {
		row := x[i*width : (i+1)*width]
		sum, squares := 0.0, 0.0
		for _, v := range row {
			sum += v
		}
		mean[i] = sum / float64(width)
		for _, v := range row {
			squares += (v - mean[i]) * (v - mean[i])
		}
		rstd[i] = 1 / math.Sqrt(squares/float64(width)+eps)
	}
}

func layerNormForward(c kernels.Call, args [][]float64) {
	out, mean, rstd, x, w, b := args[0], args[1], args[2], args[3], args[4], args[5]
	moments(c, x, mean, rstd)
	for i, v := range x {
		row, j := i/c.Dims[1], i%c.Dims[1]
		out[i] = (v-mean[row])*rstd[row]*w[j] + b[j]
	}
}

func layerNormBackwardInput(c kernels.Call, args [][]float64) {
	dx, dout, x, w, mean, rstd := args[0], args[1], args[2], args[3], args[4], args[5]
	n, width := c.Dims[0], c.Dims[1]
	for i := range n {
		plain, weighted := 0.0, 0.0
		for j := range width {
			g := dout[i*width+j] * w[j]
			plain += g
			weighted += g * (x[i*width+j] - mean[i]) * rstd[i]
		}
		for j := range width {
			norm := (x[i*width+j] - mean[i]) * rstd[i]
			g := rstd[i] * (dout[i*width+j]*w[j] - plain/float64(width) - norm*weighted/float64(width))
			if c.Flags&kernels.Accumulate != 0 {
				g += dx[i*width+j]
			}
			dx[i*width+j] = g
		}
	}
}

func layerNormBackwardWeight(c kernels.Call, args [][]float64) {
	dw, db, dout, x, mean, rstd := args[0], args[1], args[2], args[3], args[4], args[5]
	for i, g := range dout {
		row, j := i/c.Dims[1], i%c.Dims[1]
		dw[j] += g * (x[i] - mean[row]) * rstd[row]
		db[j] += g
	}
}

func geluForward(_ kernels.Call, args [][]float64) {
	for i, x := range args[1] {
		args[0][i] = 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
}

func geluBackward(_ kernels.Call, args [][]float64) {
	for i, x := range args[2] {
		t := math.Tanh(math.Sqrt(2/math.Pi) * (x + 0.044715*x*x*x))
		slope := math.Sqrt(2/math.Pi) * (1 + 3*0.044715*x*x)
		args[0][i] = args[1][i] * (0.5*(1+t) + 0.5*x*(1-t*t)*slope)
	}
}

func crossEntropy(c kernels.Call, args [][]float64) {
	losses, logits, targets := args[0], args[1], args[2]
	n, vocab, scale := c.Dims[0], c.Dims[1], float64(c.Scalars[0])
	for i := range n {
		row, target := logits[i*vocab:(i+1)*vocab], int(targets[i])
		if target < 0 {
			losses[i] = 0
			clear(row)
			continue
		}
		top, sum := math.Inf(-1), 0.0
		for _, v := range row {
			top = math.Max(top, v)
		}
		for _, v := range row {
			sum += math.Exp(v - top)
		}
		losses[i] = math.Log(sum) + top - row[target]
		for j, v := range row {
			row[j] = math.Exp(v-top) / sum * scale
		}
		row[target] -= scale
	}
}

// attentionRows calls f for each query position and head with the softmax weights over the keys
// up to it; at gives the place of (position, channel 0) of a head in qkv.
func attentionRows(c kernels.Call, qkv []float64, f func(b, head, pos int, weights []float64, lse float64, at func(b, pos, head int) int)) {
	nb, nt, nh, nk, nd := c.Dims[0], c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
	at := func(b, pos, head int) int { return ((b*nt+pos)*(nh+2*nk) + head) * nd }
	for b := range nb {
		for head := range nh {
			kv := nh + head/(nh/nk)
			for pos := range nt {
				weights := make([]float64, pos+1)
				top, sum := math.Inf(-1), 0.0
				for key := range weights {
					for d := range nd {
						weights[key] += qkv[at(b, pos, head)+d] * qkv[at(b, key, kv)+d]
					}
					weights[key] /= math.Sqrt(float64(nd))
					top = math.Max(top, weights[key])
				}
				for key := range weights {
					weights[key] = math.Exp(weights[key] - top)
					sum += weights[key]
				}
				for key := range weights {
					weights[key] /= sum
				}
				f(b, head, pos, weights, top+math.Log(sum), at)
			}
		}
	}
}

func attentionForward(c kernels.Call, args [][]float64) {
	out, lse, qkv := args[0], args[1], args[2]
	nt, nh, nk, nd := c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
	attentionRows(c, qkv, func(b, head, pos int, weights []float64, l float64, at func(b, pos, head int) int) {
		lse[(b*nh+head)*nt+pos] = l
		row := out[((b*nt+pos)*nh+head)*nd:][:nd]
		clear(row)
		for key, w := range weights {
			v := at(b, key, nh+nk+head/(nh/nk))
			for d := range row {
				row[d] += w * qkv[v+d]
			}
		}
	})
}

func attentionBackward(c kernels.Call, args [][]float64) {
	dqkv, dout, qkv := args[0], args[2], args[3]
	nt, nh, nk, nd := c.Dims[1], c.Dims[2], c.Dims[3], c.Dims[4]
	clear(dqkv)
	attentionRows(c, qkv, func(b, head, pos int, weights []float64, _ float64, at func(b, pos, head int) int) {
		kv := head / (nh / nk)
		g := dout[((b*nt+pos)*nh+head)*nd:][:nd]
		slopes, mean := make([]float64, len(weights)), 0.0
		for key, w := range weights {
			v := at(b, key, nh+nk+kv)
			for d := range g {
				slopes[key] += g[d] * qkv[v+d]
				dqkv[v+d] += w * g[d]
			}
			mean += w * slopes[key]
		}
		q := at(b, pos, head)
		for key, w := range weights {
			slope := w * (slopes[key] - mean) / math.Sqrt(float64(nd))
			k := at(b, key, nh+kv)
			for d := range g {
				dqkv[q+d] += slope * qkv[k+d]
				dqkv[k+d] += slope * qkv[q+d]
			}
		}
	})
}
