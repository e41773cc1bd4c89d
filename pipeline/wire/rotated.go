package wire

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"pnode/kernels/quant"
	"pnode/planner/plan"
)

// Int4 writes tiles of a token's elements. Some of them with another sign, they are multiplied by a Hadamard matrix H of
// ones and minus ones, which spreads an element that outweighs the others over all of them (Ashkboos et al. 2024, "QuaRot",
// section 3). Of the products 4 bits each are kept. H times H is the identity times its size: so the receiver multiplies the small
// integers that came by H again, which no order of the sums changes a bit of, and once by the tile's scale.
const (
	tileElements = plan.CodecInt4Tile
	// mostStep bounds the integers: 4 bits of two's complement but for the least one, which nobody writes.
	mostStep = 7
	// leastTile is the least largest product of a tile that is not written as zeros.
	leastTile = 0x1p-100
)

// tile holds the elements of one, and what they are multiplied by H; their number is a power of two.
type tile []float32

// tileRoom has room for any tile.
type tileRoom [tileElements]float32

// next returns room for the next tile of a token that has so many elements left.
func (r *tileRoom) next(left int) tile { return r[:plan.NextInt4Tile(left)] }

// bytes is a tile's size.
func (t tile) bytes() int { return quant.ScaleBytes + len(t)/2 }

// mostSum bounds what integers of the tile come to, multiplied by H.
func (t tile) mostSum() float32 { return float32(len(t) * mostStep) }

// load takes elements, those that lack being 0, with their signs, and multiplies by H.
func (t tile) load(xs []float32) {
	clear(t[copy(t, xs):])
	t.flip()
	t.rotate()
}

// flip changes the sign of half of the elements, the same ones in each tile: what all elements have in common would be one large
// product. Flipped twice they are as before.
func (t tile) flip() {
	for i := 0; i < len(t); i += 64 {
		signs := quant.Number(0, uint64(i/64))
		if left := len(t) - i; left < 64 {
			signs &= 1<<left - 1
		}
		for signs != 0 {
			at := i + bits.TrailingZeros64(signs)
			t[at] = -t[at]
			signs &= signs - 1
		}
	}
}

// rotate multiplies by H: the fast Walsh-Hadamard transform, sums and differences alone, which no machine fuses.
func (t tile) rotate() {
	for h := 1; h < len(t); h *= 2 {
		for i := 0; i < len(t); i += 2 * h {
			low, high := t[i:i+h], t[i+h:i+2*h]
			for j, x := range low {
				y := high[j]
				low[j], high[j] = x+y, x-y
			}
		}
	}
}

// pack writes the products. Those of a gradient are rounded by chance, with the numbers of a noise from the given one on, others to the nearest
// step. It returns the sums of squares of errors and products; the first is NaN where the tile cannot be written: not finite, or so
// large that what is read may be beyond what a stage accepts of an honest one.
func (t tile) pack(b []byte, n Noise, number uint64, back bool) (wrong, all float64) {
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
	binary.LittleEndian.PutUint32(b, math.Float32bits(most/t.mostSum()))
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
func (t tile) unpack(b []byte) error {
	scale := math.Float32frombits(binary.LittleEndian.Uint32(b))
	if !(scale*t.mostSum() < activationBound) || math.Signbit(float64(scale)) {
		return fmt.Errorf("%w: the scale of a tile is %v, from 0 to below %v are accepted", ErrElement, scale, float32(activationBound)/t.mostSum())
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

// appendInt4 appends the tiles of each token and returns the relative error.
func appendInt4(dst []byte, xs []float32, token int, n Noise, back bool) ([]byte, float64) {
	var room tileRoom
	var wrong, all float64
	number := uint64(0)
	for row := range slices.Chunk(xs, token) {
		for len(row) > 0 {
			t := room.next(len(row))
			taken := min(len(row), len(t))
			t.load(row[:taken])
			dst = append(dst, make([]byte, t.bytes())...)
			w, a := t.pack(dst[len(dst)-t.bytes():], n, number, back)
			wrong, all = wrong+w, all+a
			number += uint64(len(t) / 4)
			row = row[taken:]
		}
	}
	return dst, relative(wrong, all)
}

// decodeInt4 fills dst from the tiles that it takes.
func decodeInt4(dst []float32, token int, b []byte) error {
	var room tileRoom
	for row := range slices.Chunk(dst, token) {
		for len(row) > 0 {
			t := room.next(len(row))
			if err := t.unpack(b[:t.bytes()]); err != nil {
				return err
			}
			b = b[t.bytes():]
			row = row[copy(row, t):]
		}
	}
	return nil
}
