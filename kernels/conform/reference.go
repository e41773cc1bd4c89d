package conform

import (
	"math"
	"math/rand/v2"

	"pnode/kernels"
)

// reference is the naive float64 version of an op. args are the operands in the order of
// the table, nil for absent ones; index operands hold whole numbers.
type reference struct {
	compute func(c kernels.Call, args [][]float64)
	// prepare, if any, makes inputs that must be of a certain kind.
	prepare func(rng *rand.Rand, c kernels.Call, args [][]float64)
	exact   bool // results agree to the bit, whatever the table's tolerance
	// derived, if any, are exactly what a result is, given the results before it.
	derived *derivation
}

var references = map[kernels.Op]reference{
	kernels.OpMatMul:                  {compute: matMul},
	kernels.OpColumnSum:               {compute: columnSum},
	kernels.OpEmbedForward:            {compute: embedForward, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) { indices(r, a[1], 0, c.Dims[3]) }},
	kernels.OpEmbedBackward:           {compute: embedBackward, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) { indices(r, a[3], 0, c.Dims[3]) }},
	kernels.OpLayerNormForward:        {compute: layerNormForward},
	kernels.OpAddLayerNormForward:     {compute: addLayerNormForward},
	kernels.OpLayerNormBackwardInput:  {compute: normBackwardInput, prepare: func(_ *rand.Rand, c kernels.Call, a [][]float64) { moments(c, defaultEps, a[2], a[4], a[5]) }},
	kernels.OpLayerNormBackwardWeight: {compute: layerNormBackwardWeight, prepare: func(_ *rand.Rand, c kernels.Call, a [][]float64) { moments(c, defaultEps, a[3], a[4], a[5]) }},
	kernels.OpRMSNormForward:          {compute: rmsNormForward},
	kernels.OpAddRMSNormForward:       {compute: addRMSNormForward},
	kernels.OpRMSNormBackwardInput:    {compute: normBackwardInput, prepare: func(_ *rand.Rand, c kernels.Call, a [][]float64) { meanRoots(c, defaultEps, a[2], a[4]) }},
	kernels.OpRMSNormBackwardWeight:   {compute: rmsNormBackwardWeight, prepare: func(_ *rand.Rand, c kernels.Call, a [][]float64) { meanRoots(c, defaultEps, a[2], a[3]) }},
	kernels.OpRoPE:                    {compute: rope, prepare: func(_ *rand.Rand, c kernels.Call, a [][]float64) { angles(c, a[1], a[2]) }},
	kernels.OpAttentionForward:        {compute: attentionForward, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) { starts(r, c, a[3]) }},
	kernels.OpAttentionBackward:       {compute: attentionBackward, prepare: prepareAttentionBackward},
	kernels.OpAttentionForwardPart:    {compute: attentionForward, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) { starts(r, c, a[3]) }},
	kernels.OpAttentionBackwardPart:   {compute: attentionBackward, prepare: prepareAttentionBackward},
	kernels.OpAttentionCached:         {compute: attentionCached, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) { starts(r, c, a[3]) }},
	kernels.OpGELUForward:             {compute: geluForward, prepare: func(_ *rand.Rand, _ kernels.Call, a [][]float64) { spread(a[1]) }},
	kernels.OpGELUBackward:            {compute: geluBackward, prepare: func(_ *rand.Rand, _ kernels.Call, a [][]float64) { spread(a[2]) }},
	kernels.OpSwiGLUForward:           {compute: swigluForward, prepare: func(_ *rand.Rand, _ kernels.Call, a [][]float64) { spread(a[1]) }},
	kernels.OpSwiGLUBackward:          {compute: swigluBackward, prepare: func(_ *rand.Rand, _ kernels.Call, a [][]float64) { spread(a[2]) }},
	kernels.OpDropout:                 {compute: dropout},
	kernels.OpCrossEntropy:            {compute: crossEntropy, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) { spread(a[1]); indices(r, a[2], -1, c.Dims[1]) }},
	kernels.OpAdamW:                   {compute: adamW, prepare: func(_ *rand.Rand, _ kernels.Call, a [][]float64) { absolute(a[2]) }, derived: &derivation{operand: 3, from: 0, round: roundedHalves}},
	kernels.OpSumSquares:              {compute: sumSquares},
	kernels.OpAdd:                     {compute: add},
	kernels.OpScale:                   {compute: scale},
	kernels.OpCombine:                 {compute: combine},
	kernels.OpFill:                    {compute: fillValue},
	kernels.OpCopy:                    {compute: func(_ kernels.Call, a [][]float64) { copy(a[0], a[1]) }},
	kernels.OpCast:                    {compute: cast, exact: true, prepare: func(_ *rand.Rand, _ kernels.Call, a [][]float64) { sprinkle(a[1]) }},
	kernels.OpQuantize:                {compute: quantize, prepare: func(_ *rand.Rand, _ kernels.Call, a [][]float64) { groupKinds(a[2]) }},
	kernels.OpDequantize:              {compute: dequantize, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) { packedWords(r, c.Dims[0], a[1]) }},
	kernels.OpMatMulInt8:              {compute: matMulInt8, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) { packedMatrix(r, a[2], c.Dims[1], c.Dims[2]) }},
	kernels.OpEmbedInt8: {compute: embedInt8, prepare: func(r *rand.Rand, c kernels.Call, a [][]float64) {
		indices(r, a[1], 0, c.Dims[3])
		packedMatrix(r, a[2], c.Dims[3], c.Dims[2])
	}},
}

// indices fills x with whole numbers in [low, high).
func indices(rng *rand.Rand, x []float64, low, high int) {
	for i := range x {
		x[i] = float64(low + rng.IntN(high-low))
	}
}

// spread makes every 7th value large, so that exponentials reach their limits.
func spread(x []float64) {
	for i := 0; i < len(x); i += 7 {
		x[i] *= 12
	}
}

func absolute(x []float64) {
	for i := range x {
		x[i] = math.Abs(x[i])
	}
}

// matMul multiplies in the order of the rows. Its numbers belong to one trial, as do those of fill and roundTo, and one goroutine
// has a trial: the race detector, which would find nothing, takes most of their time.
//
//go:norace
func matMul(c kernels.Call, args [][]float64) {
	m, n, k := c.Dims[0], c.Dims[1], c.Dims[2]
	out, a, b, bias := args[0], args[1], args[2], args[3]
	aRow, aCol, bRow, bCol := k, 1, n, 1
	if c.Flags&kernels.TransA != 0 {
		aRow, aCol = 1, m
	}
	if c.Flags&kernels.TransB != 0 {
		bRow, bCol = 1, k
	}
	for i := range m {
		for j := range n {
			sum := 0.0
			for p := range k {
				sum += a[i*aRow+p*aCol] * b[p*bRow+j*bCol]
			}
			if bias != nil {
				sum += bias[j]
			}
			if c.Flags&kernels.Accumulate != 0 {
				sum += out[i*n+j]
			}
			out[i*n+j] = sum
		}
	}
}

func columnSum(c kernels.Call, args [][]float64) {
	n, width := c.Dims[0], c.Dims[1]
	for j := range width {
		sum := 0.0
		for i := range n {
			sum += args[1][i*width+j]
		}
		if c.Flags&kernels.Accumulate != 0 {
			sum += args[0][j]
		}
		args[0][j] = sum
	}
}

func embedForward(c kernels.Call, args [][]float64) {
	t, width := c.Dims[1], c.Dims[2]
	for i, token := range args[1] {
		for j := range width {
			v := args[2][int(token)*width+j]
			if args[3] != nil {
				v += args[3][i%t*width+j]
			}
			args[0][i*width+j] = v
		}
	}
}

func embedBackward(c kernels.Call, args [][]float64) {
	t, width := c.Dims[1], c.Dims[2]
	for i, token := range args[3] {
		for j := range width {
			args[0][int(token)*width+j] += args[2][i*width+j]
			if args[1] != nil {
				args[1][i%t*width+j] += args[2][i*width+j]
			}
		}
	}
}

func sumSquares(_ kernels.Call, args [][]float64) {
	args[0][0] = 0
	for _, v := range args[1] {
		args[0][0] += v * v
	}
}

func add(_ kernels.Call, args [][]float64) {
	for i := range args[0] {
		args[0][i] = args[1][i] + args[2][i]
	}
}

func scale(c kernels.Call, args [][]float64) {
	for i := range args[0] {
		args[0][i] *= float64(c.Scalars[0])
	}
}

func combine(c kernels.Call, args [][]float64) {
	for i := range args[0] {
		args[0][i] = float64(c.Scalars[0])*args[1][i] + float64(c.Scalars[1])*args[2][i]
		if p := c.Dims[1]; p > 0 && i%p == 0 {
			args[0][i] += float64(c.Scalars[2])
		}
	}
}

func fillValue(c kernels.Call, args [][]float64) {
	for i := range args[0] {
		args[0][i] = float64(c.Scalars[0])
	}
}

func adamW(c kernels.Call, args [][]float64) {
	s := [8]float64{}
	for i, v := range c.Scalars {
		s[i] = float64(v)
	}
	lr, beta1, beta2, eps, decay := s[0], s[1], s[2], s[3], s[4]
	for i := range args[0] {
		g := args[4][i] * s[7]
		args[1][i] = beta1*args[1][i] + (1-beta1)*g
		args[2][i] = beta2*args[2][i] + (1-beta2)*g*g
		update := args[1][i] / s[5] / (math.Sqrt(args[2][i]/s[6]) + eps)
		args[0][i] -= lr * (update + decay*args[0][i])
	}
	if args[3] != nil {
		copy(args[3], args[0])
	}
}
