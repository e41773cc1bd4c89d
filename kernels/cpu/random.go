package cpu

import (
	"math"
	"math/bits"

	"pnode/kernels"
)

// Multipliers and key steps of Philox4x32 (Salmon et al. 2011, section 3.2).
const (
	philoxA, philoxB         = 0xD2511F53, 0xCD9E8D57
	philoxStepA, philoxStepB = 0x9E3779B9, 0xBB67AE85
	philoxRounds             = 10
)

// philox is block `block` of a stream: the numbers of elements 4*block to 4*block+3.
func philox(r kernels.Random, block uint64) [4]uint32 {
	c0, c1, c2, c3 := uint32(block), uint32(block>>32), uint32(r.Stream), uint32(r.Stream>>32)
	k0, k1 := uint32(r.Key), uint32(r.Key>>32)
	for range philoxRounds {
		highA, lowA := bits.Mul32(philoxA, c0)
		highB, lowB := bits.Mul32(philoxB, c2)
		c0, c1, c2, c3 = highB^c1^k0, lowB, highA^c3^k1, lowA
		k0, k1 = k0+philoxStepA, k1+philoxStepB
	}
	return [4]uint32{c0, c1, c2, c3}
}

// randomly calls do with the number of each element in [from, to); from is a multiple of 4.
func randomly(r kernels.Random, from, to int, do func(i int, word uint32)) {
	for i := from; i < to; i += 4 {
		words := philox(r, uint64(i/4))
		for j := range min(4, to-i) {
			do(i+j, words[j])
		}
	}
}

func (d *Device) dropout(c kernels.Call) {
	out, x, p := floats(c.Args[0]), floats(c.Args[1]), float64(c.Scalars[0])
	least, scale := uint32(math.Ceil(p*(1<<32))), float32(1/(1-p))
	d.ranges(len(out), func(from, to int) {
		randomly(c.Random, from, to, func(i int, word uint32) {
			kept := float32(0)
			if word >= least {
				kept = x[i] * scale
			}
			out[i] = kept
		})
	})
}
