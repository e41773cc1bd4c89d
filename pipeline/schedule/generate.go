package schedule

import "fmt"

// Shape is what a generator is asked for: one replica's pipeline and its contiguous
// share of the step's micro-batches, one stage per worker.
type Shape struct {
	Replica    Replica
	Stages     int
	FirstMicro Micro
	Micros     int
}

func (s Shape) check() error {
	if s.Stages < 1 || s.Micros < 1 || s.Replica < 0 || s.FirstMicro < 0 ||
		s.Stages > MaxWorkers || s.Micros > MaxNumber || s.Replica > MaxNumber || s.FirstMicro > MaxNumber {
		return fmt.Errorf("%w: replica %d with %d stages and micro-batches %d+%d: stages are 1 to %d, micro-batches at least 1, numbers at most %d",
			ErrBadShape, s.Replica, s.Stages, s.FirstMicro, s.Micros, MaxWorkers, MaxNumber)
	}
	return nil
}

// GPipe is all forwards, then all backwards (Huang et al. 2019): every worker keeps
// Micros activations.
func GPipe(s Shape) (Schedule, error) {
	warmups := make([]int, max(s.Stages, 0))
	for i := range warmups {
		warmups[i] = s.Micros - 1
	}
	return Warmups(s, warmups)
}

// Depth is 1F1B with warm-ups DepthWarmups(s.Stages, d): d = 1 is the ordinary 1F1B
// (DAPPLE, Fan et al. 2021); a larger d hides more link latency for more memory.
func Depth(s Shape, d int) (Schedule, error) {
	if d < 1 {
		return Schedule{}, fmt.Errorf("%w: depth %d, want 1 or more", ErrBadShape, d)
	}
	return Warmups(s, DepthWarmups(s.Stages, d))
}

// DepthWarmups are the warm-ups d*(stages-1-r) of depth-d 1F1B.
func DepthWarmups(stages, d int) []int {
	warmups := make([]int, max(stages, 0))
	for r := range warmups {
		warmups[r] = d * (stages - 1 - r)
	}
	return warmups
}

// Warmups is 1F1B with given warm-ups: stage r computes warmups[r] forwards, then one
// forward and one backward in turn, then the remaining backwards. It keeps at most
// warmups[r]+1 activations. Warm-ups past Micros-1 count as Micros-1. They must not
// increase along the pipeline: a stage that waits for more forwards than its
// predecessor starts would wait forever.
func Warmups(s Shape, warmups []int) (Schedule, error) {
	if err := s.check(); err != nil {
		return Schedule{}, err
	}
	if len(warmups) != s.Stages {
		return Schedule{}, fmt.Errorf("%w: %d warm-ups for %d stages", ErrBadShape, len(warmups), s.Stages)
	}
	out := Schedule{Workers: make([][]Action, s.Stages)}
	for r, w := range warmups {
		if w < 0 || (r > 0 && min(w, s.Micros-1) > min(warmups[r-1], s.Micros-1)) {
			return Schedule{}, fmt.Errorf("%w: warm-ups %v, want numbers from 0 that do not increase", ErrBadShape, warmups)
		}
		out.Workers[r] = s.worker(Stage(r), min(w, s.Micros-1))
	}
	return out, nil
}

func (s Shape) worker(stage Stage, warmup int) []Action {
	actions := make([]Action, 0, 2*s.Micros)
	put := func(op Op, i int) {
		actions = append(actions, Action{Op: op, Replica: s.Replica, Stage: stage, Micro: s.FirstMicro + Micro(i)})
	}
	for i := range warmup {
		put(Forward, i)
	}
	for i := warmup; i < s.Micros; i++ {
		put(Forward, i)
		put(Backward, i-warmup)
	}
	for i := s.Micros - warmup; i < s.Micros; i++ {
		put(Backward, i)
	}
	return actions
}
