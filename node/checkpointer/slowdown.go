package checkpointer

import (
	"math"
	"slices"
	"time"
)

const (
	// plainSteps bounds the steps without a checkpoint that are remembered; fewer than leastPlain say nothing.
	plainSteps, leastPlain = 32, 8
	// lostSaves is how many checkpoints are remembered by what steps lost. Fewer than leastSaves say nothing.
	lostSaves, leastSaves = 5, 3
)

// slowdown measures how much longer steps take by a checkpoint that is made meanwhile. Steps differ anyway, so only what is more
// than they differ by counts. The zero value has seen nothing.
type slowdown struct {
	plain []time.Duration // the newest steps without a checkpoint
	saves []time.Duration // what the newest checkpoints cost
	steps int             // while the checkpoint under way was made
	sum   time.Duration   // of these steps
}

// step takes in how long a step took, and whether a checkpoint was made meanwhile.
func (s *slowdown) step(took time.Duration, saving bool) {
	if saving {
		s.steps, s.sum = s.steps+1, s.sum+took
		return
	}
	s.plain = append(s.plain, took)
	s.plain = s.plain[max(0, len(s.plain)-plainSteps):]
}

// saved takes in that the checkpoint of the steps before is made. It cost what these took more than as many steps without one, less
// what so many steps differ by.
func (s *slowdown) saved() {
	n := len(s.plain)
	if n >= leastPlain {
		sorted := slices.Sorted(slices.Values(s.plain))
		usual, spread := sorted[n/2], sorted[3*n/4]-sorted[n/4]
		cost := s.sum - time.Duration(s.steps)*usual - time.Duration(math.Sqrt(float64(s.steps))*float64(spread))
		s.saves = append(s.saves, max(0, cost))
		s.saves = s.saves[max(0, len(s.saves)-lostSaves):]
	}
	s.steps, s.sum = 0, 0
}

// lost returns what one checkpoint costs, the median of the newest ones: a step may be long for another reason.
func (s *slowdown) lost() time.Duration {
	n := len(s.saves)
	if n < leastSaves {
		return 0
	}
	return slices.Sorted(slices.Values(s.saves))[n/2]
}
