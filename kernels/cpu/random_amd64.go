package cpu

import "pnode/kernels"

// philoxInEights computes eight blocks at a time where their counters have the high word
// in common.
func philoxInEights(words []uint32, r kernels.Random, block uint64) {
	if block>>32 != (block+uint64(len(words)/4))>>32 {
		philoxGeneric(words, r, block)
		return
	}
	var keys [2 * philoxRounds]uint32
	k0, k1 := uint32(r.Key), uint32(r.Key>>32)
	for i := 0; i < len(keys); i += 2 {
		keys[i], keys[i+1] = k0, k1
		k0, k1 = k0+philoxStepA, k1+philoxStepB
	}
	philoxAVX2(words, &keys, uint32(block), uint32(block>>32), uint32(r.Stream), uint32(r.Stream>>32))
}

func widenInEights(out []float32, x []uint16) {
	whole := len(x) &^ 7
	widenAVX2(out[:whole], x)
	widenGeneric(out[whole:], x[whole:])
}

func narrowInEights(out []uint16, x []float32) {
	whole := len(x) &^ 7
	narrowAVX2(out[:whole], x)
	narrowGeneric(out[whole:], x[whole:])
}

func narrowRandomlyInEights(out []uint16, x []float32, words []uint32) {
	whole := len(x) &^ 7
	narrowRandomlyAVX2(out[:whole], x, words)
	narrowRandomlyGeneric(out[whole:], x[whole:], words[whole:])
}
