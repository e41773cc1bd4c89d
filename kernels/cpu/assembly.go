//go:build amd64 || arm64

package cpu

import "pnode/kernels"

// What stands between the assembly of every instruction set and its variant.

// copyRows is assembly that packs a fixed number of panels.
type copyRows func(dst, src *float32, step, stride, k int)

// copyTo makes a variant's copyA or copyB from the assembly for its unit.
func copyTo(unit int, one, four copyRows) func(dst, src []float32, stride, k, panels int) {
	return func(dst, src []float32, stride, k, panels int) {
		_, _ = dst[panels*k*unit-1], src[(k-1)*stride+panels*unit-1]
		i := 0
		for ; i+groupPanels <= panels; i += groupPanels {
			four(&dst[i*k*unit], &src[i*unit], k*unit, stride, k)
		}
		for ; i < panels; i++ {
			one(&dst[i*k*unit], &src[i*unit], k*unit, stride, k)
		}
	}
}

// widenBy, narrowBy and narrowRandomlyBy make a variant's casts from assembly for lengths
// that are multiples of 8.
func widenBy(assembly func(out []float32, x []uint16)) func(out []float32, x []uint16) {
	return func(out []float32, x []uint16) {
		whole := len(x) &^ 7
		assembly(out[:whole], x)
		widenGeneric(out[whole:], x[whole:])
	}
}

func narrowBy(assembly func(out []uint16, x []float32)) func(out []uint16, x []float32) {
	return func(out []uint16, x []float32) {
		whole := len(x) &^ 7
		assembly(out[:whole], x)
		narrowGeneric(out[whole:], x[whole:])
	}
}

func narrowRandomlyBy(assembly func(out []uint16, x []float32, words []uint32)) func(out []uint16, x []float32, words []uint32) {
	return func(out []uint16, x []float32, words []uint32) {
		whole := len(x) &^ 7
		assembly(out[:whole], x, words)
		narrowRandomlyGeneric(out[whole:], x[whole:], words[whole:])
	}
}

// philoxCarries tells whether the counters of the words' blocks, from `block` on, differ in
// their high word: assembly counts in the low one.
func philoxCarries(words []uint32, block uint64) bool {
	return block>>32 != (block+uint64(len(words)/4))>>32
}

// philoxKeys are the two keys of each round.
func philoxKeys(r kernels.Random) (keys [2 * philoxRounds]uint32) {
	k0, k1 := uint32(r.Key), uint32(r.Key>>32)
	for i := 0; i < len(keys); i += 2 {
		keys[i], keys[i+1] = k0, k1
		k0, k1 = k0+philoxStepA, k1+philoxStepB
	}
	return keys
}
