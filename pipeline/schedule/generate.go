package schedule

import "fmt"

// GPipe is all forwards, then all backwards (Huang et al., GPipe, NeurIPS 2019): every
// worker keeps Micros activations.
func GPipe(s Shape) (Schedule, error) {
	warmups := make([]int, max(s.Stages, 0))
	for i := range warmups {
		warmups[i] = s.Micros - 1
	}
	return Warmups(s, warmups)
}

// Depth is 1F1B with warm-ups DepthWarmups(s.Stages, d): d = 1 is the ordinary 1F1B
// (Fan et al., DAPPLE, PPoPP 2021); a larger d hides more link latency for more memory.
func Depth(s Shape, d int) (Schedule, error) {
	if err := atLeastOne("depth", d); err != nil {
		return Schedule{}, err
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

// Elastic is 1F1B with the smallest warm-ups that reach the least period possible under
// the costs and caps (MinimalWarmups).
func Elastic(s Shape, c Costs, caps []int) (Schedule, error) {
	warmups, _, err := MinimalWarmups(c, caps)
	if err != nil {
		return Schedule{}, err
	}
	return Warmups(s, warmups)
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
		out.Workers[r] = s.alternate(Stage(r), min(w, s.Micros-1), 1)
	}
	return out, nil
}

// KFKB computes k forwards, then k backwards, in turn, after a warm-up of k forwards per
// worker that is left (Wang et al., Ada-Grouper, 2023). It keeps k*(stages-r)
// activations. Its bursts queue on links that are slow in bandwidth, where Depth does as
// well with less memory.
func KFKB(s Shape, k int) (Schedule, error) {
	if err := s.check(); err != nil {
		return Schedule{}, err
	}
	if err := atLeastOne("group", k); err != nil {
		return Schedule{}, err
	}
	out := Schedule{Workers: make([][]Action, s.Stages)}
	for r := range out.Workers {
		out.Workers[r] = s.alternate(Stage(r), min(k*(s.Stages-1-r), s.Micros), k)
	}
	return out, nil
}

// alternate is a stage's program: warmup forwards, then k forwards and k backwards in
// turn, then the remaining backwards.
func (s Shape) alternate(stage Stage, warmup, k int) []Action {
	p := program{shape: s, actions: make([]Action, 0, 2*s.Micros)}
	forward, backward := 0, 0
	for ; forward < warmup; forward++ {
		p.put(Forward, int(stage), forward)
	}
	for backward < s.Micros {
		for range min(k, s.Micros-forward) {
			p.put(Forward, int(stage), forward)
			forward++
		}
		for range min(k, s.Micros-backward) {
			p.put(Backward, int(stage), backward)
			backward++
		}
	}
	return p.actions
}
