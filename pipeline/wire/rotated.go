package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"pnode/kernels/quant"
	"pnode/planner/plan"
)

// Int4 writes tiles of tileElements. A tile's elements, some of them with another sign, are multiplied by a Hadamard matrix H of
// ones and minus ones, which spreads an element that outweighs the others over all of them (Ashkboos et al. 2024, "QuaRot",
// section 3). Of the products 4 bits each are kept. H times H is tileElements times the identity: so the receiver multiplies the small
// integers that came by H again, which no order of the sums changes a bit of, and once by the tile's scale.
const (
	tileElements = plan.CodecInt4Tile
	tileBytes    = quant.ScaleBytes + tileElements/2
	// mostStep bounds the integers: 4 bits of two's complement but for the least one, which nobody writes.
	mostStep = 7
	// mostSum bounds what they come to, multiplied by H.
	mostSum = tileElements * mostStep
	// leastTile is the least largest product of a tile that is not written as zeros.
	leastTile = 0x1p-100
)

// tile holds the elements of one, and what they are multiplied by H.
type tile [tileElements]float32

// load takes up to tileElements elements, the others being 0, with their signs, and multiplies by H.
func (t *tile) load(xs []float32) {
	clear(t[copy(t[:], xs):])
	t.flip()
	t.rotate()
}

// flip changes the sign of half of the elements, the same ones in each tile: what all elements have in common would be one large
// product. Flipped twice they are as before.
func (t *tile) flip() {
	for i := 0; i < tileElements; i += 64 {
		signs := quant.Number(0, uint64(i/64))
		for signs != 0 {
			at := i + bits.TrailingZeros64(signs)
			t[at] = -t[at]
			signs &= signs - 1
		}
	}
}

// rotate multiplies by H: the fast Walsh-Hadamard transform, sums and differences alone, which no machine fuses.
func (t *tile) rotate() {
	for h := 1; h < tileElements; h *= 2 {
		for i := 0; i < tileElements; i += 2 * h {
			low, high := t[i:i+h], t[i+h:i+2*h]
			for j, x := range low {
				y := high[j]
				low[j], high[j] = x+y, x-y
			}
		}
	}
}

// pack writes the products in tileBytes. Those of a gradient are rounded by chance, with the numbers of a noise from the given one on, others to the nearest
// step. It returns the sums of squares of errors and products; the first is NaN where the tile cannot be written: not finite, or so
// large that what is read may be beyond what a stage accepts of an honest one.
func (t *tile) pack(b []byte, n Noise, number uint64, back bool) (wrong, all float64) {
	limit := float32(activationBound)
	if back {
		limit = gradientBound / (1 << GradientGrowth)
	}
	largest := uint32(0) // without the sign, bits are in the order of the numbers
	for _, x := range t {
		largest = max(largest, math.Float32bits(x)&0x7fffffff)
		all += float64(float64(x) * float64(x))
	}
	most := math.Float32frombits(largest)
	clear(b)
	switch {
	case !(most < limit/2):
		return math.NaN(), all
	case most < leastTile:
		return all, all
	}
	binary.LittleEndian.PutUint32(b, math.Float32bits(most/mostSum))
	step, inverse := float64(most/mostStep), mostStep/most
	b = b[quant.ScaleBytes:]
	chance := uint64(0x8000_8000_8000_8000) // of the nearest: a half each
	for i, x := range t {
		if back && i%4 == 0 {
			chance = n.at(number + uint64(i/4))
		}
		q := max(-mostStep, min(mostStep, (int32(x*inverse*65536)+int32(chance&0xffff))>>16))
		chance = bits.RotateLeft64(chance, -16)
		b[i/2] |= byte(q&15) << (i % 2 * 4)
		d := float64(x) - float64(float64(q)*step)
		wrong += float64(d * d)
	}
	return wrong, all
}

// unpack fills a tile from the bytes of pack. It refuses what no sender writes.
func (t *tile) unpack(b []byte) error {
	scale := math.Float32frombits(binary.LittleEndian.Uint32(b))
	if !(scale*mostSum < activationBound) || math.Signbit(float64(scale)) {
		return fmt.Errorf("%w: the scale of a tile is %v, from 0 to below %v are accepted", ErrElement, scale, float32(activationBound)/mostSum)
	}
	for i, pair := range b[quant.ScaleBytes:] {
		low, high := int8(pair<<4)>>4, int8(pair)>>4
		if low < -mostStep || high < -mostStep {
			return fmt.Errorf("%w: elements of a tile are %x", ErrValue, pair)
		}
		t[2*i], t[2*i+1] = float32(low), float32(high)
	}
	t.rotate()
	t.flip()
	for i := range t {
		t[i] *= scale
	}
	return nil
}

// appendInt4 appends the tiles of xs and returns the relative error.
func appendInt4(dst []byte, xs []float32, n Noise, back bool) ([]byte, float64) {
	var t tile
	var wrong, all float64
	for number := uint64(0); len(xs) > 0; number += tileElements / 4 {
		t.load(xs[:min(len(xs), tileElements)])
		dst = append(dst, make([]byte, tileBytes)...)
		w, a := t.pack(dst[len(dst)-tileBytes:], n, number, back)
		wrong, all = wrong+w, all+a
		xs = xs[min(len(xs), tileElements):]
	}
	return dst, relative(wrong, all)
}

// decodeInt4 fills dst from the tiles that it takes.
func decodeInt4(dst []float32, b []byte) error {
	var t tile
	for ; len(dst) > 0; b = b[tileBytes:] {
		if err := t.unpack(b[:tileBytes]); err != nil {
			return err
		}
		dst = dst[copy(dst, t[:]):]
	}
	return nil
}
