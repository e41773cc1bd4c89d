package conform

import (
	"encoding/binary"
	"math"
	"math/rand/v2"

	"pnode/kernels"
	"pnode/kernels/quant"
)

// The reference of both is package quant, whose bytes pipeline/wire's tests pin.

func quantize(c kernels.Call, args [][]float64) {
	words, steps, x := args[0], args[1], single(args[2])
	packed := make([]byte, 4*len(words))
	for g := range len(steps) / 2 {
		from := g * quant.Group
		b := packed[quant.Bytes(from):]
		wrong, all := quant.Pack(b, x[from:min(len(x), from+quant.Group)], c.Random.Key, uint64(c.Dims[1]*quant.Group+from)/4)
		w, a := quant.InSteps(b, wrong, all)
		steps[2*g], steps[2*g+1] = float64(w), float64(a)
	}
	for i := range words {
		words[i] = float64(int32(binary.LittleEndian.Uint32(packed[4*i:])))
	}
}

func dequantize(_ kernels.Call, args [][]float64) {
	packed := make([]byte, 0, 4*len(args[1]))
	for _, w := range args[1] {
		packed = binary.LittleEndian.AppendUint32(packed, uint32(int32(w)))
	}
	out := make([]float32, len(args[0]))
	quant.Unpack(out, packed)
	for i, v := range out {
		args[0][i] = float64(v)
	}
}

// groupKinds makes groups of all that there can be: zeros, too small to be scaled, hardly so,
// huge, and not finite.
func groupKinds(x []float64) {
	for i := range x {
		switch i / quant.Group % 7 {
		case 1:
			x[i] = 0
		case 2:
			x[i] *= 1e-35
		case 3:
			x[i] *= 0x1p-99
		case 4:
			x[i] *= 1e37
		case 5:
			if i%50 == 0 {
				x[i] = math.Inf(1)
			}
		}
	}
}

// packedWords fills words with n packed elements.
func packedWords(rng *rand.Rand, n int, words []float64) {
	x := make([]float64, n)
	for i := range x {
		x[i] = rng.NormFloat64()
	}
	steps := make([]float64, 2*quant.Groups(n))
	quantize(kernels.Call{Random: kernels.Random{Key: rng.Uint64()}}, [][]float64{words, steps, x})
}
