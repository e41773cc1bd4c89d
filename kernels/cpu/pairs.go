package cpu

import (
	"math"
	"unsafe"
)

// Products of BF16 where a processor adds those of two neighbours in K at a time. Both are packed as
// one element, a pair, as large as a float and moved like one: the even one in the lower half. An odd
// K ends with a pair with zero. Tiles, depth blocks and tasks count in pairs.

// packPairs writes dst[i*step+p*unit+j] = the pair of src[2*p*stride+i*unit+j] and of what lies stride
// behind it, for i < panels, p < k and j < unit.
type packPairs func(dst []float32, src []uint16, step, stride, k, panels int)

// bindPairs is bind for a product in pairs. An operand whose pairs lie together in memory is one of
// floats from here on.
func (o *operand) bindPairs(depth int) {
	if o.deep && depth%2 == 0 {
		o.wide, o.half = asPairs(o.half), nil
		o.stride /= 2
		return
	}
	o.apart, o.depth = true, depth
}

// asPairs is the memory of halves as pairs. They need not be aligned.
func asPairs(halves []uint16) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(halves))), len(halves)/2)
}

// asHalves is the memory of pairs as halves.
func asHalves(pairs []float32) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(pairs))), 2*len(pairs))
}

// packHalves is pack of what bindPairs leaves in halves: positions [from, to), pairs [depth, depth+k).
func (o *operand) packHalves(dst, room []float32, from, to, depth, k int) {
	if o.deep {
		for next := from; from < to; from = next {
			next = min(to, from+o.group)
			o.copyPairs(room, from, next, depth, k)
			group := operand{stored: stored{wide: room}, stride: k, deep: true, unit: o.unit, copy: o.copy, transpose: o.transpose}
			group.packFloats(dst, 0, next-from, 0, k)
			dst = dst[roundUp(next-from, o.unit)*k:]
		}
		return
	}
	src, rows := o.half[2*depth*o.stride:], min(2*k, o.depth-2*depth)
	panels, whole := (to-from)/o.unit, rows/2
	if panels > 0 && whole > 0 {
		o.pair(dst, src[from:], k*o.unit, o.stride, whole, panels)
	}
	for i := 0; i < panels && whole < k; i++ {
		at := from + i*o.unit
		pairRows(dst[(i*k+whole)*o.unit:], src[2*whole*o.stride+at:], o.stride, o.unit, o.unit, 1)
	}
	if from += panels * o.unit; from < to {
		pairRows(dst[panels*k*o.unit:], src[from:], o.stride, o.unit, to-from, rows)
	}
}

// copyPairs copies pairs of positions [from, to) of an odd K, which begin anywhere.
func (o *operand) copyPairs(room []float32, from, to, depth, k int) {
	halves := asHalves(room)
	rows := min(2*k, o.depth-2*depth)
	for j := from; j < to; j++ {
		row := halves[(j-from)*2*k:][:2*k]
		copy(row, o.half[j*o.stride+2*depth:][:rows])
		clear(row[rows:])
	}
}

// pairRows is packPairs of one panel of any rows, of which j < cols are in memory, else 0.
func pairRows(dst []float32, src []uint16, stride, unit, cols, rows int) {
	for p := 0; p < rows; p += 2 {
		panel := dst[p/2*unit:][:unit]
		for j := range cols {
			pair := uint32(src[p*stride+j])
			if p+1 < rows {
				pair |= uint32(src[(p+1)*stride+j]) << 16
			}
			panel[j] = math.Float32frombits(pair)
		}
		clear(panel[cols:])
	}
}

// pairsGeneric makes a packPairs in Go.
func pairsGeneric(unit int) packPairs {
	return func(dst []float32, src []uint16, step, stride, k, panels int) {
		for i := range panels {
			pairRows(dst[i*step:], src[i*unit:], stride, unit, unit, 2*k)
		}
	}
}

// addInTurn returns what VDPBF16PS makes of sum: it adds the product of the upper halves, then that of
// the lower ones, each rounded to nearest. Numbers below the smallest normal one count as zero.
func addInTurn(sum float32, a, b uint32) float32 {
	sum = addProduct(sum, a&^0xffff, b&^0xffff)
	return addProduct(sum, a<<16, b<<16)
}

func addProduct(sum float32, a, b uint32) float32 {
	return normal(float32(oddSum(float64(normal(sum)), product64(a, b))))
}

// addTogether returns what BFDOT and BFMMLA make of sum (Arm Architecture Reference Manual, BFDotAdd and BFRound, without
// extended BF16): each product, then the sum of both, then sum plus that are rounded to odd. Numbers below the smallest
// normal one count as zero, and NaN is always the same.
func addTogether(sum float32, a, b uint32) float32 {
	low, high := toOdd(product64(a<<16, b<<16)), toOdd(product64(a&^0xffff, b&^0xffff))
	both := toOdd(oddSum(float64(low), float64(high)))
	return toOdd(oddSum(float64(normal(sum)), float64(both)))
}

// product64 is the product of two BF16 numbers in the upper halves of words, which is exact.
func product64(a, b uint32) float64 {
	return float64(normal(math.Float32frombits(a))) * float64(normal(math.Float32frombits(b)))
}

// oddSum is x+y in float64, rounded to odd: where that is not exact, the last digit is one. Rounded again to fewer digits it comes
// to what all digits of the sum come to.
func oddSum(x, y float64) float64 {
	s := x + y
	if rest := s - x; !math.IsInf(s, 0) && math.Float64bits(s)&1 == 0 {
		if low := (x - (s - rest)) + (y - rest); low != 0 {
			s = math.Nextafter(s, math.Copysign(math.Inf(1), low))
		}
	}
	return s
}

// toOdd rounds to odd. What is too large for a float32 is infinite, and what is below the smallest normal one zero.
func toOdd(x float64) float32 {
	nearest := float32(x)
	bits := math.Float32bits(nearest)
	switch magnitude := math.Abs(x); {
	case x != x:
		return math.Float32frombits(quietNaN)
	case magnitude < 0x1p-126:
		return float32(math.Copysign(0, x))
	case magnitude >= 0x1p128 || float64(nearest) == x:
		return nearest
	case math.Abs(float64(nearest)) > magnitude:
		bits--
	}
	return math.Float32frombits(bits | 1)
}

const quietNaN = 0x7fc00000

// normal returns zero for numbers below the smallest normal one, else x.
func normal(x float32) float32 {
	if math.Float32bits(x)&infinityBits == 0 {
		return float32(math.Copysign(0, float64(x)))
	}
	return x
}
