package cpu

import (
	"math"
	"math/bits"
	"unsafe"

	"pnode/kernels"
)

// Multipliers and key steps of Philox4x32 (Salmon et al. 2011, section 3.2).
const (
	philoxA, philoxB         = 0xD2511F53, 0xCD9E8D57
	philoxStepA, philoxStepB = 0x9E3779B9, 0xBB67AE85
	philoxRounds             = 10
)

// wordsAtOnce is the number of random words that are made before they are used: 4 KiB.
const wordsAtOnce = 1 << 10

// philoxGeneric writes the blocks of a stream from `block` on: the numbers of elements
// 4*block, 4*block+1, ... len(words) is a multiple of 4.
func philoxGeneric(words []uint32, r kernels.Random, block uint64) {
	for i := 0; i < len(words); i += 4 {
		*(*[4]uint32)(words[i:]) = philoxBlock(r, block+uint64(i/4))
	}
}

func philoxBlock(r kernels.Random, block uint64) [4]uint32 {
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

// randomly calls do with consecutive ranges of [0, n) and a word for each of their elements,
// that of number first for element 0.
func (d *Device) randomly(r kernels.Random, n, first int, do func(from, to int, words []uint32)) error {
	if err := d.pool.reserve(wordsAtOnce + 32); err != nil {
		return err
	}
	ahead := first % 4 // words of the first block that are others'
	d.pool.run(blocks(n, grain), func(w *worker, task int) {
		end := min(n, (task+1)*grain)
		for from := task * grain; from < end; from += wordsAtOnce {
			to := min(end, from+wordsAtOnce)
			words := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(w.scratch))), roundUp(ahead+to-from, 32))
			d.v.philox(words, r, uint64(first/4+from/4))
			do(from, to, words[ahead:ahead+to-from])
		}
	})
	return nil
}

func (d *Device) dropout(c kernels.Call) error {
	out, x, p := floats(c.Args[0]), floats(c.Args[1]), float64(c.Scalars[0])
	least, scale := uint32(math.Ceil(p*(1<<32))), float32(1/(1-p))
	return d.randomly(c.Random, len(out), c.Dims[1], func(from, to int, words []uint32) {
		d.v.drop(out[from:to], x[from:to], words, least, scale)
	})
}

func dropGeneric(out, x []float32, words []uint32, least uint32, scale float32) {
	for i, v := range x {
		out[i] = v * scale
		if words[i] < least {
			out[i] = 0
		}
	}
}
