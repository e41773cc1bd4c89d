package checkpointer

import (
	"slices"
	"time"
)

const (
	// neighbours is how many steps on each side of a checkpoint its steps are compared with at most. One with fewer than leastNeighbours on a
	// side says nothing.
	neighbours, leastNeighbours = 8, 2
	// rememberedCosts is how many checkpoints are remembered by what steps lost.
	rememberedCosts = 16
	// chance is how seldom checkpoints that cost nothing, or less than is counted, may look as if they cost that: once in so many. So many heads in a
	// row as leastCosts are as rare as that.
	chance, leastCosts = 20, 5
)

// slowdown measures how much longer steps take by a checkpoint that is made meanwhile. Each step beside one is compared with the steps just before it and
// just after it alone: where a machine is busy for a while, these are slow as well, and a checkpoint that takes longer for
// that reason is charged nothing. The zero value has seen nothing.
type slowdown struct {
	before []time.Duration // the newest steps before the checkpoints of sum
	sum    time.Duration   // of the steps beside them, with none between
	steps  int             // of sum
	saves  int             // checkpoints of sum that are made; 0: none is compared
	plain  []time.Duration // the newest steps without a checkpoint since
	costs  []time.Duration // what the newest checkpoints cost, the newest last; less than 0 where the steps beside one were faster
}

// step takes in how long a step took, and whether a checkpoint was made meanwhile.
func (s *slowdown) step(took time.Duration, saving bool) {
	if saving {
		if len(s.plain) > 0 {
			s.compare()
			s.before, s.plain, s.sum, s.steps, s.saves = s.plain, nil, 0, 0, 0
		}
		s.sum, s.steps = s.sum+took, s.steps+1
		return
	}
	s.plain = append(s.plain, took)
	if len(s.plain) == neighbours {
		s.compare()
	}
	s.plain = newest(neighbours, s.plain)
}

// saved takes in that the checkpoint of the steps before is made.
func (s *slowdown) saved() { s.saves++ }

// compare remembers what the checkpoints of sum cost, once: what the steps beside them took more than as many of those around them. What is
// usual there is the middle of two medians, so that a change while they were made counts for half of the steps' time at most.
func (s *slowdown) compare() {
	if s.saves > 0 && len(s.before) >= leastNeighbours && len(s.plain) >= leastNeighbours {
		usual := (median(s.before) + median(s.plain)) / 2
		s.costs = newest(rememberedCosts, append(s.costs, (s.sum-time.Duration(s.steps)*usual)/time.Duration(s.saves)))
	}
	s.saves = 0
}

// lost returns what one checkpoint costs at least, once in chance wrongly: the lower confidence limit of the median of the newest costs by
// the sign test (Dixon and Mood, "The statistical sign test", JASA 41, 1946), which assumes nothing of how steps are spread. Of fewer than
// leastCosts that says nothing. Each of them counts for its part of so many then, by the lowest: chance gives little of it, and what people are
// told does not jump with the last.
func (s *slowdown) lost() time.Duration {
	n, below := len(s.costs), 0 // costs below the limit
	ways, term := 1, 1          // how many of 2^n outcomes have at most so many, and exactly so many, costs below the median
	for ; below < n && ways*chance <= 1<<n; below++ {
		term = term * (n - below) / (below + 1)
		ways += term
	}
	if n == 0 {
		return 0
	}
	limit := max(0, slices.Sorted(slices.Values(s.costs))[max(0, below-1)])
	return limit * time.Duration(min(n, leastCosts)) / leastCosts
}

// newest returns the last n values.
func newest[T any](n int, values []T) []T { return values[max(0, len(values)-n):] }

// median returns the middle of values; 0 of none.
func median[T time.Duration | float64](values []T) T {
	n := len(values)
	if n == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
