package conform

import (
	"math"

	"pnode/kernels"
)

// philox is Philox4x32-10 after figure 4 and section 3.2 of Salmon et al. 2011: ten rounds
// of two 32x32->64 bit products, the key raised by a Weyl sequence between them.
func philox(counter [4]uint32, key [2]uint32) [4]uint32 {
	for range 10 {
		a, b := uint64(0xD2511F53)*uint64(counter[0]), uint64(0xCD9E8D57)*uint64(counter[2])
		counter = [4]uint32{
			uint32(b>>32) ^ counter[1] ^ key[0], uint32(b),
			uint32(a>>32) ^ counter[3] ^ key[1], uint32(a),
		}
		key[0] += 0x9E3779B9
		key[1] += 0xBB67AE85
	}
	return counter
}

// word is the number of element i.
func word(r kernels.Random, i int) uint32 {
	block := uint64(i / 4)
	counter := [4]uint32{uint32(block), uint32(block >> 32), uint32(r.Stream), uint32(r.Stream >> 32)}
	return philox(counter, [2]uint32{uint32(r.Key), uint32(r.Key >> 32)})[i%4]
}

func dropout(c kernels.Call, args [][]float64) {
	p := float64(c.Scalars[0])
	for i, x := range args[1] {
		args[0][i] = 0
		if float64(word(c.Random, c.Dims[1]+i)) >= p*(1<<32) {
			args[0][i] = x / (1 - p)
		}
	}
}

// rounded is element i of a call that rounds to a type.
func rounded(c kernels.Call, to kernels.DType, i int, x float32) float32 {
	if to != kernels.BF16 || c.Flags&kernels.Stochastic == 0 || x != x {
		return nearest(to, x)
	}
	chance := word(c.Random, c.Dims[1]+i) >> 16
	return math.Float32frombits((math.Float32bits(x) + chance) &^ 0xffff)
}

func cast(c kernels.Call, args [][]float64) {
	to := c.Args[0].Buf.DType()
	for i, x := range args[1] {
		args[0][i] = float64(rounded(c, to, i, float32(x)))
	}
}

// derivation is an operand that is a function of the result `from` to the bit.
type derivation struct {
	operand, from int
	round         func(c kernels.Call, x []float32) []float64
}

func roundedHalves(c kernels.Call, x []float32) []float64 {
	halves, to := make([]float64, len(x)), c.Args[3].Buf.DType()
	for i, v := range x {
		halves[i] = float64(rounded(c, to, i, v))
	}
	return halves
}
