package conform

import (
	"math"

	"pnode/kernels"
)

const defaultEps = 1e-5

// moments computes mean and 1/deviation of the rows of x [N,C].
func moments(c kernels.Call, eps float64, x, mean, rstd []float64) {
	n, width := c.Dims[0], c.Dims[1]
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

// meanRoots computes 1/sqrt(mean square + eps) of the rows of x [N,C].
func meanRoots(c kernels.Call, eps float64, x, rstd []float64) {
	n, width := c.Dims[0], c.Dims[1]
	for i := range n {
		squares := 0.0
		for _, v := range x[i*width : (i+1)*width] {
			squares += v * v
		}
		rstd[i] = 1 / math.Sqrt(squares/float64(width)+eps)
	}
}

func layerNormForward(c kernels.Call, args [][]float64) {
	out, mean, rstd, x, w, b := args[0], args[1], args[2], args[3], args[4], args[5]
	moments(c, float64(c.Scalars[0]), x, mean, rstd)
	for i, v := range x {
		row, j := i/c.Dims[1], i%c.Dims[1]
		out[i] = (v-mean[row])*rstd[row]*w[j] + b[j]
	}
}

func addLayerNormForward(c kernels.Call, args [][]float64) {
	add(c, [][]float64{args[1], args[4], args[5]})
	layerNormForward(c, [][]float64{args[0], args[2], args[3], args[1], args[6], args[7]})
}

func rmsNormForward(c kernels.Call, args [][]float64) {
	out, rstd, x, w := args[0], args[1], args[2], args[3]
	meanRoots(c, float64(c.Scalars[0]), x, rstd)
	for i, v := range x {
		out[i] = v * rstd[i/c.Dims[1]] * w[i%c.Dims[1]]
	}
}

func addRMSNormForward(c kernels.Call, args [][]float64) {
	add(c, [][]float64{args[1], args[3], args[4]})
	rmsNormForward(c, [][]float64{args[0], args[2], args[1], args[5]})
}

// normBackwardInput is the input gradient of both norms; that of the RMS norm has no mean.
func normBackwardInput(c kernels.Call, args [][]float64) {
	dx, dout, x, w, mean := args[0], args[1], args[2], args[3], args[4]
	rest := args[5:]
	if c.Op == kernels.OpRMSNormBackwardInput {
		mean, rest = nil, args[4:]
	}
	rstd, residual := rest[0], rest[1]
	n, width := c.Dims[0], c.Dims[1]
	for i := range n {
		norm := func(j int) float64 {
			if mean == nil {
				return x[i*width+j] * rstd[i]
			}
			return (x[i*width+j] - mean[i]) * rstd[i]
		}
		plain, weighted := 0.0, 0.0
		for j := range width {
			g := dout[i*width+j] * w[j]
			plain += g
			weighted += g * norm(j)
		}
		if mean == nil {
			plain = 0
		}
		for j := range width {
			g := rstd[i] * (dout[i*width+j]*w[j] - plain/float64(width) - norm(j)*weighted/float64(width))
			if residual != nil {
				g += residual[i*width+j]
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

func rmsNormBackwardWeight(c kernels.Call, args [][]float64) {
	for i, g := range args[1] {
		args[0][i%c.Dims[1]] += g * args[2][i] * args[3][i/c.Dims[1]]
	}
}
