package cost

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// timed returns a device that takes a microsecond for a call and as long for its size as at a billion a second.
func timed() plan.DeviceProfile {
	d := plan.DeviceProfile{Name: "cpu", MatMulFLOPS: 1e9, AttentionFLOPS: 1e9, MemoryBytesPerS: 1e9, MemoryFreeBytes: 1 << 40}
	for w := kernels.WorkProducts; w <= kernels.WorkCopy; w++ {
		for i, size := range w.Sizes() {
			d.Times.Of(w)[i] = 1000 + size
		}
	}
	return d
}

// TestTimesOfCalls: between sizes that were measured times are on the line, and a small call takes half of the smallest at least.
func TestTimesOfCalls(t *testing.T) {
	s := SpeedOf(timed(), model.StorageF32)
	sizes := kernels.WorkProducts.Sizes()
	for size, want := range map[int64]int64{
		0: (1000 + sizes[0]) / 2, sizes[0]: 1000 + sizes[0], sizes[2]: 1000 + sizes[2], (sizes[3] + sizes[4]) / 2: 1000 + (sizes[3]+sizes[4])/2,
		4 * sizes[6]: 4 * (1000 + sizes[6]),
	} {
		if got := s.call(kernels.WorkProducts, size); got != schedule.Nanos(want) {
			t.Errorf("%d operations take %d ns, want %d", size, got, want)
		}
	}
	if got := s.works(model.Works{{Work: kernels.WorkProducts, Size: sizes[1], Count: 3}, {Work: kernels.WorkUpdate, Size: 1 << 12, Count: -1}}); got != schedule.Nanos(3*(1000+sizes[1])-1000-1<<12) {
		t.Errorf("three products less an update take %d ns", got)
	}
}

// TestNoProductIsFasterThanItsRate: what plans count on of a claim bounds small products, too.
func TestNoProductIsFasterThanItsRate(t *testing.T) {
	d := timed()
	d.MatMulFLOPS = 1e6
	s := SpeedOf(d, model.StorageF32)
	for _, size := range kernels.WorkProducts.Sizes() {
		if got, least := s.call(kernels.WorkProducts, size), Duration(size, 1e6); got < least-1 {
			t.Errorf("%d operations take %d ns, want %d at least", size, got, least)
		}
	}
}

// TestTimesGrowWithSizes holds for whatever profile is accepted: a larger call takes no less time, and no time is out of bounds.
func TestTimesGrowWithSizes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		d := timed()
		for w := kernels.WorkProducts; w <= kernels.WorkCopy; w++ {
			for i := range d.Times.Of(w) {
				d.Times.Of(w)[i] = 1 + rng.Int64N(1<<rng.IntN(41))
			}
			slices.Sort(d.Times.Of(w)[:])
		}
		if err := (plan.Profile{Devices: []plan.DeviceProfile{d}}).Validate(""); err != nil {
			t.Fatal(err)
		}
		s := SpeedOf(d, model.StorageF32)
		for range 50 {
			w := kernels.Work(1 + rng.IntN(kernels.Works))
			a, b := rng.Int64N(1<<rng.IntN(62)+1), rng.Int64N(1<<rng.IntN(62)+1)
			if small, large := s.call(w, min(a, b)), s.call(w, max(a, b)); small < 0 || small > large || large > Longest {
				t.Fatalf("%v of %d takes %d ns, of %d %d ns: %v", w, min(a, b), small, max(a, b), large, *s.Times.Of(w))
			}
		}
		if got := s.works(model.Works{{Work: kernels.WorkUpdate, Size: math.MaxInt64, Count: math.MaxInt64}, {Work: kernels.WorkCopy, Size: 1, Count: math.MinInt64}}); got < 0 || got > Longest {
			t.Fatalf("%d ns", got)
		}
	}
}
