package cpu

import "pnode/kernels"

// philoxInEights computes eight blocks at a time where their counters have the high word
// in common.
func philoxInEights(words []uint32, r kernels.Random, block uint64) {
	if philoxCarries(words, block) {
		philoxGeneric(words, r, block)
		return
	}
	keys := philoxKeys(r)
	philoxAVX2(words, &keys, uint32(block), uint32(block>>32), uint32(r.Stream), uint32(r.Stream>>32))
}
