package compress

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"pnode/pipeline/wire"
)

// A tensor in TopK: the float32 values of the bins, then for each chunk of elements the places of those kept, 12 bits each and
// ascending, and two bits for the bin of each. Zeros are not kept: where fewer than all places are used, the others repeat the last one with bin 0,
// and a chunk of zeros has bits of one alone.
const (
	topKChunk = 4096 // elements
	topKKept  = 64   // of each chunk; a shorter one keeps one for each 64 begun
	topKBins  = 4
	topKFront = 4 * topKBins // bytes
	// topKRange is the width of all bins in deviations of the kept elements.
	topKRange = 6
	// noPlace and noBin stand in a chunk of zeros.
	noPlace, noBin = 1<<12 - 1, topKBins - 1
)

// kept returns how many of a chunk's n elements are kept.
func kept(n int) int { return (n + topKChunk/topKKept - 1) / (topKChunk / topKKept) }

func chunkBytes(n int) int { return placesBytes(kept(n)) + (kept(n)+3)/4 }

func placesBytes(k int) int { return (3*k + 1) / 2 }

func topKBytes(n int) int {
	if n == 0 {
		return 0
	}
	return topKFront + n/topKChunk*chunkBytes(topKChunk) + chunkBytes(n%topKChunk)
}

// takeTopK writes to b, which has zeros.
func takeTopK(b []byte, xs []float32) {
	if len(xs) == 0 {
		return
	}
	places := make([]uint32, 0, topKKept*(len(xs)/topKChunk+1))
	for first := 0; first < len(xs); first += topKChunk {
		places = appendLargest(places, first, xs[first:min(len(xs), first+topKChunk)])
	}
	bins := newBins(xs, places)
	for i, v := range bins.values {
		binary.LittleEndian.PutUint32(b[4*i:], math.Float32bits(v))
	}
	b = b[topKFront:]
	for first := 0; first < len(xs); first += topKChunk {
		n := min(len(xs)-first, topKChunk)
		c := chunk{b[:placesBytes(kept(n))], b[placesBytes(kept(n)):chunkBytes(n)]}
		place, used := 0, 0
		for ; len(places) > 0 && int(places[0]) < first+n; used++ {
			bin := bins.of(xs[places[0]])
			place = int(places[0]) - first
			c.put(used, place, bin)
			xs[places[0]] -= bins.values[bin]
			places = places[1:]
		}
		for j := used; j < kept(n); j++ {
			if used == 0 {
				c.put(j, noPlace, noBin)
			} else {
				c.put(j, place, 0)
			}
		}
		b = b[chunkBytes(n):]
	}
}

// appendLargest appends, ascending, where in a tensor the largest elements of a chunk are that begins with element first. Of
// equal ones the first are kept.
func appendLargest(places []uint32, first int, xs []float32) []uint32 {
	// The least key of the heap is at its root. A key has the magnitude, and of equal ones the first place is the largest.
	var heap [topKKept]uint64
	used, k := 0, kept(len(xs))
	for i, x := range xs {
		key := uint64(math.Float32bits(x)&0x7fffffff)<<12 | uint64(topKChunk-1-i)
		switch {
		case used == k && key > heap[0]:
			sink(heap[:k], 0, key)
		case used < k && key >= topKChunk: // not zero
			heap[used] = key
			if used++; used == k {
				for at := k/2 - 1; at >= 0; at-- {
					sink(heap[:k], at, heap[at])
				}
			}
		}
	}
	var set [topKChunk / 64]uint64
	for _, key := range heap[:used] {
		i := topKChunk - 1 - key%topKChunk
		set[i/64] |= 1 << (i % 64)
	}
	for word, b := range set {
		for ; b != 0; b &= b - 1 {
			places = append(places, uint32(first+64*word+bits.TrailingZeros64(b)))
		}
	}
	return places
}

// sink puts a key at a node of a heap, or below it where its children have less.
func sink(heap []uint64, at int, key uint64) {
	for {
		child := 2*at + 1
		if child >= len(heap) {
			break
		}
		if child+1 < len(heap) && heap[child+1] < heap[child] {
			child++
		}
		if key <= heap[child] {
			break
		}
		heap[at], at = heap[child], child
	}
	heap[at] = key
}

// bins are four of equal width about the mean of a tensor's kept elements, the outer ones open, and the mean of those in each.
type bins struct {
	mean, width float64
	values      [topKBins]float32
}

func newBins(xs []float32, places []uint32) (s bins) {
	n := float64(len(places))
	for _, at := range places {
		s.mean += float64(xs[at])
	}
	s.mean /= max(n, 1)
	squares := 0.0
	for _, at := range places {
		d := float64(xs[at]) - s.mean
		squares += float64(d * d) // the conversion keeps it from being fused on some machines
	}
	s.width = topKRange * math.Sqrt(squares/max(n, 1)) / topKBins // over n, so that two elements of either sign are not both in the middle
	var sums, counts [topKBins]float64
	for _, at := range places {
		bin := s.of(xs[at])
		sums[bin] += float64(xs[at])
		counts[bin]++
	}
	for i := range sums {
		s.values[i] = float32(sums[i] / max(counts[i], 1))
	}
	return s
}

// of returns the bin of an element.
func (s bins) of(x float32) int {
	if s.width == 0 {
		return topKBins / 2
	}
	return int(min(max(math.RoundToEven((float64(x)-s.mean)/s.width)+topKBins/2, 0), topKBins-1))
}

// chunk is the bytes of a chunk's places and bins.
type chunk struct{ places, bins []byte }

// put writes number j to bytes that have zeros there.
func (c chunk) put(j, place, bin int) {
	at := c.places[3*j/2:]
	if j%2 == 0 {
		at[0], at[1] = byte(place), byte(place>>8)
	} else {
		at[0] |= byte(place << 4)
		at[1] = byte(place >> 4)
	}
	c.bins[j/4] |= byte(bin << (2 * (j % 4)))
}

func (c chunk) get(j int) (place, bin int) {
	at := c.places[3*j/2:]
	if place = int(at[0]) | int(at[1])<<8; j%2 == 1 {
		place >>= 4
	}
	return place & noPlace, int(c.bins[j/4] >> (2 * (j % 4)) & 3)
}

func addTopK(sum []float32, weight float32, b []byte, limit float32) error {
	if len(sum) == 0 {
		return nil
	}
	var values [topKBins]float32
	for i := range values {
		values[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		if !within(values[i], limit) {
			return refused(i, values[i], limit)
		}
	}
	b = b[topKFront:]
	used := [topKBins]bool{}
	for first := 0; first < len(sum); first += topKChunk {
		n := min(len(sum)-first, topKChunk)
		c := chunk{b[:placesBytes(kept(n))], b[placesBytes(kept(n)):chunkBytes(n)]}
		if !c.add(sum[first:first+n], weight, values, &used) {
			return fmt.Errorf("%w: places of elements %d to %d", wire.ErrValue, first, first+n-1)
		}
		b = b[chunkBytes(n):]
	}
	for i, v := range values {
		if !used[i] && math.Float32bits(v) != 0 {
			return fmt.Errorf("%w: bin %d has a value and no element", wire.ErrValue, i)
		}
	}
	return nil
}

// add adds weight times a chunk's elements to sum, and reports whether it has the one form of these.
func (c chunk) add(sum []float32, weight float32, values [topKBins]float32, used *[topKBins]bool) bool {
	k := kept(len(sum))
	if k%2 == 1 && c.places[3*k/2]>>4 != 0 || k%4 != 0 && c.bins[k/4]>>(2*(k%4)) != 0 {
		return false
	}
	empty := true
	for j := 0; j < k && empty; j++ {
		place, bin := c.get(j)
		empty = place == noPlace && bin == noBin
	}
	if empty {
		return true
	}
	last, full := -1, true
	for j := range k {
		place, bin := c.get(j)
		switch {
		case place == last && bin == 0:
			full = false
		case place <= last || !full || place >= len(sum):
			return false
		default:
			sum[place] += float32(weight * values[bin])
			used[bin], last = true, place
		}
	}
	return true
}
