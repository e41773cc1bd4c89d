//go:build amd64 || arm64

package cpu

import "pnode/kernels"

// What stands between the assembly of every instruction set and its variant.

// copyRows is assembly that packs a fixed number of panels.
type copyRows func(dst, src *float32, step, stride, k int)

// copyTo makes a variant's copyA or copyB from the assembly for one panel of its unit and for
// a group of them.
func copyTo(unit, group int, one, many copyRows) packCopy {
	return func(dst, src []float32, stride, k, panels int) {
		_, _ = dst[panels*k*unit-1], src[(k-1)*stride+panels*unit-1]
		i := 0
		for ; i+group <= panels; i += group {
			many(&dst[i*k*unit], &src[i*unit], k*unit, stride, k)
		}
		for ; i < panels; i++ {
			one(&dst[i*k*unit], &src[i*unit], k*unit, stride, k)
		}
	}
}

// pairsTo makes a variant's pairA or pairB from the assembly for one panel of its unit and for a
// group of them.
func pairsTo(unit int, one, many func(dst *float32, src *uint16, step, stride, k int)) packPairs {
	return func(dst []float32, src []uint16, step, stride, k, panels int) {
		_, _ = dst[(panels-1)*step+k*unit-1], src[(2*k-1)*stride+panels*unit-1]
		i := 0
		for ; i+groupPanels <= panels; i += groupPanels {
			many(&dst[i*step], &src[i*unit], step, stride, k)
		}
		for ; i < panels; i++ {
			one(&dst[i*step], &src[i*unit], step, stride, k)
		}
	}
}

// byEights makes a variant's widen or narrow from assembly for lengths that are multiples of 8 and
// plain Go for the rest, roundBy its round.
func byEights[Out, In any](assembly, rest func(out []Out, x []In)) func(out []Out, x []In) {
	return func(out []Out, x []In) {
		whole := len(x) &^ 7
		assembly(out[:whole], x)
		rest(out[whole:], x[whole:])
	}
}

func roundBy(assembly func(out []uint16, x []float32, words []uint32)) func(out []uint16, x []float32, words []uint32) {
	return func(out []uint16, x []float32, words []uint32) {
		whole := len(x) &^ 7
		assembly(out[:whole], x, words)
		roundGeneric(out[whole:], x[whole:], words[whole:])
	}
}

// philoxBy makes a variant's philox from assembly that computes eight blocks at a time where
// their counters have the high word in common.
func philoxBy(assembly func(words []uint32, keys *[2 * philoxRounds]uint32, c0, c1, c2, c3 uint32)) func(words []uint32, r kernels.Random, block uint64) {
	return func(words []uint32, r kernels.Random, block uint64) {
		if block>>32 != (block+uint64(len(words)/4))>>32 { // assembly counts in the low word
			philoxGeneric(words, r, block)
			return
		}
		var keys [2 * philoxRounds]uint32 // two of each round
		k0, k1 := uint32(r.Key), uint32(r.Key>>32)
		for i := 0; i < len(keys); i += 2 {
			keys[i], keys[i+1] = k0, k1
			k0, k1 = k0+philoxStepA, k1+philoxStepB
		}
		assembly(words, &keys, uint32(block), uint32(block>>32), uint32(r.Stream), uint32(r.Stream>>32))
	}
}
