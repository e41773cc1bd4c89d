package optimum

import (
	"cmp"
	"math"
	"slices"

	"pnode/pipeline/schedule"
)

// work bounds from below how long layers take on devices, some of which are better at some layers.
type work struct {
	quickest []schedule.Nanos // prefix over layers: each on the device that is best for it
	rates    []int64          // by device: how much of that it does at most in 2^workBits ns
	first    []int            // devices of the pool by rate
}

const workBits = 20

// newWork returns the work of all layers as a kind of time measures it.
func newWork(on Devices, kind func(schedule.StageTime) schedule.Nanos) work {
	devices, pool := on.Model.Devices, on.Pool
	w := work{quickest: make([]schedule.Nanos, len(devices[pool[0]].Times)), rates: make([]int64, len(devices)), first: slices.Clone(pool)}
	for l := range len(w.quickest) - 1 {
		least := schedule.Nanos(math.MaxInt64)
		for _, d := range pool {
			least = min(least, kind(devices[d].Time(l, l+1)))
		}
		w.quickest[l+1] = w.quickest[l] + least
		for _, d := range pool {
			if took := kind(devices[d].Time(l, l+1)); took > 0 {
				w.rates[d] = max(w.rates[d], (int64(least)<<workBits+int64(took)-1)/int64(took))
			}
		}
	}
	slices.SortStableFunc(w.first, func(a, b int) int { return cmp.Compare(w.rates[b], w.rates[a]) })
	return w
}

// least returns the longest stage at least where layers from first on are shared by so many devices that are not used.
func (w work) least(first, devices int, used []bool) schedule.Nanos {
	return w.leastOf(first, 0, devices, used)
}

// leastOf is least with so many more copies of all layers on the devices.
func (w work) leastOf(first, copies, devices int, used []bool) schedule.Nanos {
	sum := int64(0)
	for _, d := range w.first {
		if !used[d] && devices > 0 {
			sum, devices = sum+w.rates[d], devices-1
		}
	}
	if sum == 0 {
		return 0
	}
	whole := w.quickest[len(w.quickest)-1]
	left := min(min(whole-w.quickest[first], schedule.MaxNanos)+schedule.Nanos(copies)*min(whole, schedule.MaxNanos), schedule.MaxNanos)
	return schedule.Nanos((int64(left) << workBits) / sum)
}

// Twins returns by device an earlier one of the pool that is its like: a plan takes as long with either in the other's place. It is -1
// for none.
func (on Devices) Twins() []int {
	all := slices.Repeat([]int{-1}, len(on.Model.Devices))
	for i, d := range on.Pool {
		for _, earlier := range on.Pool[:i] {
			if on.like(earlier, d) {
				all[d] = earlier
			}
		}
	}
	return all
}

// like reports whether two devices have the same times, memory and links.
func (on Devices) like(a, b int) bool {
	m := on.Model
	x, y := m.Devices[a], m.Devices[b]
	if x.Speed != y.Speed || x.Storage != y.Storage || x.FreeBytes != y.FreeBytes || x.CopyBytesPerS != y.CopyBytesPerS || x.HostBytes != y.HostBytes || !slices.Equal(x.Times, y.Times) || m.Link(a, b) != m.Link(b, a) {
		return false
	}
	return !slices.ContainsFunc(on.Pool, func(d int) bool {
		return d != a && d != b && (m.Link(a, d) != m.Link(b, d) || m.Link(d, a) != m.Link(d, b))
	})
}
