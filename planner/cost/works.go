package cost

import (
	"math/bits"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
)

// hasTimes reports whether calls of all works were measured, and counted: a device that copies nothing to itself has no
// times for that.
func (s *Speed) hasTimes(c *model.LayerCost) bool {
	if len(c.ForwardWorks)+len(c.InputWorks)+len(c.WeightWorks) == 0 {
		return false
	}
	for w := kernels.WorkProducts; w < kernels.WorkCopy; w++ {
		if !s.Times.Of(w).Measured() {
			return false
		}
	}
	return true
}

// works returns the time of calls, one after the other.
func (s *Speed) works(all model.Works) schedule.Nanos {
	sum := schedule.Nanos(0)
	for _, w := range all {
		each := s.call(w.Work, w.Size)
		most := int64(Longest/max(each, 1)) + 1
		sum = max(-Longest, min(sum+each*schedule.Nanos(max(-most, min(w.Count, most))), Longest))
	}
	return max(sum, 0)
}

// call returns the time of a call: between two sizes that were measured on the line that joins their times. Half of
// the time of the smallest does not depend on its size. Beyond the largest size calls are as fast as there.
func (s *Speed) call(w kernels.Work, size int64) schedule.Nanos {
	times, sizes := s.Times.Of(w), w.Sizes()
	last := len(sizes) - 1
	switch {
	case size <= sizes[0]:
		half := times[0] / 2
		return schedule.Nanos(half + part(times[0]-half, max(size, 0), sizes[0]))
	case size >= sizes[last]:
		return schedule.Nanos(part(times[last], size, sizes[last]))
	}
	i := 1
	for size > sizes[i] {
		i++
	}
	return schedule.Nanos(times[i-1] + part(times[i]-times[i-1], size-sizes[i-1], sizes[i]-sizes[i-1]))
}

// part returns nanos*size/of, rounded up, at most Longest.
func part(nanos, size, of int64) int64 {
	high, low := bits.Mul64(uint64(nanos), uint64(size))
	if high >= uint64(of) {
		return int64(Longest)
	}
	n, rest := bits.Div64(high, low, uint64(of))
	if rest > 0 && n < uint64(Longest) {
		n++
	}
	return int64(min(n, uint64(Longest)))
}
