package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// shape is how many replicas of how many stages.
type shape struct{ replicas, stages int }

func (s shape) units() int { return s.replicas * s.stages }

func (s shape) String() string {
	return fmt.Sprintf("%s x %s", plan.Count(s.replicas, "replica"), plan.Count(s.stages, "stage"))
}

// bounded is a shape with a step time that it cannot beat.
type bounded struct {
	shape
	bound schedule.Nanos
}

// shapes lists what n units allow, the lowest bound first.
func (c *cluster) shapes(n int) ([]bounded, error) {
	t := c.in.Run.Train
	asked := shape{max(t.Replicas, 1), max(t.Stages, 1)}
	if n < asked.units() {
		return nil, fmt.Errorf("%w: %v need %s, %d of %s can be used; let %d more join, or ask for fewer stages or replicas",
			ErrNotEnoughNodes, asked, plan.Count(asked.units(), "device"), n, plan.Count(len(c.in.Members), "node"), asked.units()-n)
	}
	lower := c.newLowerBound()
	var shapes []bounded
	var unfit error
	for r := asked.replicas; r <= min(n, t.Micros/c.order.copies); r++ {
		for s := asked.stages; s <= min(n/r, c.layers()); s++ {
			if err := c.order.fits(shape{r, s}, c.layers(), t.Micros); err == nil {
				shapes = append(shapes, bounded{shape{r, s}, lower.of(shape{r, s})})
			} else if unfit == nil {
				unfit = err
			}
			if t.Stages > 0 {
				break
			}
		}
		if t.Replicas > 0 {
			break
		}
	}
	switch {
	case len(shapes) == 0 && unfit == nil:
		return nil, fmt.Errorf("%w: %s for %d x %d copies of the model under %s: each needs at least one", plan.ErrBadInput, plan.Count(t.Micros, "micro-batch"), asked.replicas, c.order.copies, c.order.spec)
	case len(shapes) == 0:
		if c.in.Previous == nil {
			return nil, fmt.Errorf("%w for the schedule: %w", ErrNotEnoughNodes, unfit)
		}
		c.order = c.order.plain() // a run that has begun goes on
		return c.shapes(n)
	}
	slices.SortStableFunc(shapes, func(a, b bounded) int {
		return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.units(), b.units()), cmp.Compare(a.replicas, b.replicas))
	})
	return shapes, nil
}

// lowerBound bounds step times with one chunk on each device from below: the first micro-batch of a replica takes at
// least the fastest unit's time for the whole model; the others share all speed there
// is; no period is shorter than the longest layer on the unit that is best for it.
type lowerBound struct {
	micros  int
	first   schedule.Nanos
	layer   schedule.Nanos
	rateSum []int64 // by number of units, fastest first: micro-batches in 2^rateBits ns
}

const rateBits = 40

func (c *cluster) newLowerBound() lowerBound {
	b := lowerBound{micros: c.in.Run.Train.Micros, rateSum: make([]int64, len(c.units)+1)}
	wholes := make([]schedule.Nanos, len(c.units))
	for i, u := range c.units {
		wholes[i] = u.Whole()
	}
	slices.Sort(wholes)
	for i, w := range wholes {
		b.rateSum[i+1] = b.rateSum[i] + (1<<rateBits)/int64(w) + 1
	}
	b.first = wholes[0]
	for l := range c.layers() {
		quickest := schedule.Nanos(math.MaxInt64)
		for _, u := range c.units {
			quickest = min(quickest, u.Micro[l+1]-u.Micro[l])
		}
		b.layer = max(b.layer, quickest)
	}
	return b
}

func (b lowerBound) of(s shape) schedule.Nanos {
	shared := schedule.Nanos((int64(max(b.micros-s.replicas, 0)) << rateBits) / b.rateSum[s.units()])
	most := (b.micros + s.replicas - 1) / s.replicas
	return b.first + max(shared, schedule.Nanos(most-1)*b.layer)
}
