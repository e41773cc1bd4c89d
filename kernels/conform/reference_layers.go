package conform

import (
	"math"

	"pnode/kernels"
)

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

func sigmoid(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

func swigluForward(c kernels.Call, args [][]float64) {
	f := c.Dims[1]
	for i := range args[0] {
		gate, up := args[1][i/f*2*f+i%f], args[1][i/f*2*f+f+i%f]
		args[0][i] = gate * sigmoid(gate) * up
	}
}

func swigluBackward(c kernels.Call, args [][]float64) {
	f := c.Dims[1]
	for i, g := range args[1] {
		at := i/f*2*f + i%f
		gate, up := args[2][at], args[2][at+f]
		s := sigmoid(gate)
		args[0][at] = g * up * (s + gate*s*(1-s))
		args[0][at+f] = g * gate * s
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
