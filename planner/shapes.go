package planner

import (
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// shape is how many replica groups of how many devices.
type shape struct{ replicas, stages int }

func (s shape) devices() int { return s.replicas * s.stages }

func (s shape) String() string {
	return fmt.Sprintf("%s of %s", plan.Count(s.replicas, "replica"), plan.Count(s.stages, "stage"))
}

// bounded is a shape with a step time that it cannot beat.
type bounded struct {
	shape
	bound schedule.Nanos
}

// lowerBound bounds step times with one chunk on each device from below. The first micro-batch of a
// replica takes at least the fastest device's time for the whole model. The others share all speed
// there is. No period is shorter than the longest layer on the device that is best for it.
type lowerBound struct {
	micros  int
	first   schedule.Nanos
	layer   schedule.Nanos
	rateSum []int64 // by number of devices, fastest first: micro-batches in 2^rateBits ns
}

const rateBits = 40

func newLowerBound(devices []*cost.Device, micros int) lowerBound {
	b := lowerBound{micros: micros, rateSum: make([]int64, len(devices)+1)}
	wholes := make([]schedule.Nanos, len(devices))
	for i, d := range devices {
		wholes[i] = d.Whole()
	}
	slices.Sort(wholes)
	for i, w := range wholes {
		b.rateSum[i+1] = b.rateSum[i] + (1<<rateBits)/int64(w) + 1
	}
	b.first = wholes[0]
	for l := range len(devices[0].Micro) - 1 {
		quickest := schedule.Nanos(math.MaxInt64)
		for _, d := range devices {
			quickest = min(quickest, d.Micro[l+1]-d.Micro[l])
		}
		b.layer = max(b.layer, quickest)
	}
	return b
}

func (b lowerBound) of(s shape) schedule.Nanos {
	shared := schedule.Nanos((int64(max(b.micros-s.replicas, 0)) << rateBits) / b.rateSum[s.devices()])
	most := (b.micros + s.replicas - 1) / s.replicas
	return b.first + max(shared, schedule.Nanos(most-1)*b.layer)
}
