package schedule

// ZBH1 is 1F1B with a split backward whose weight gradients wait so long that every
// worker keeps as many activations as there are workers, 1F1B's most (Qi et al., Zero
// Bubble Pipeline Parallelism, ICLR 2024, section 3): the drain has the gradients of the
// inputs only, and weight gradients fill it.
func ZBH1(s Shape) (Schedule, error) { return zeroBubble(s, 1) }

// ZBH2 has twice the warm-up of ZBH1, and no bubble between the first and the last action
// of a worker when forward, input and weight gradient take as long (Qi et al., section 3).
// It keeps 2*stages-1 activations.
func ZBH2(s Shape) (Schedule, error) { return zeroBubble(s, 2) }

// zeroBubble starts depth forwards per following worker ahead and has weight gradients
// trail by depth per preceding worker.
func zeroBubble(s Shape, depth int) (Schedule, error) {
	if err := s.check(); err != nil {
		return Schedule{}, err
	}
	out := Schedule{Workers: make([][]Action, s.Stages)}
	for r := range out.Workers {
		out.Workers[r] = s.trail(r, min(depth*(s.Stages-1-r), s.Micros-1), func(i int) int { return i + 1 - depth*r })
	}
	return out, nil
}

// TwoStage is 1F1B with a split backward and weight gradients in batches of k
// micro-batches, which may be computed as one (Rae et al., 2BP, 2024). k = 0 is one batch
// at the end: the fewest bubbles, and the activations of all micro-batches.
func TwoStage(s Shape, k int) (Schedule, error) {
	if err := s.check(); err != nil {
		return Schedule{}, err
	}
	k = orDefault(k, s.Micros)
	if err := atLeastOne("group", k); err != nil {
		return Schedule{}, err
	}
	out := Schedule{Workers: make([][]Action, s.Stages)}
	for r := range out.Workers {
		out.Workers[r] = s.trail(r, min(s.Stages-1-r, s.Micros-1), func(i int) int { return (i + 1) / k * k })
	}
	return out, nil
}

// trail is a stage's 1F1B with split backwards: after the input gradient of micro-batch i
// as many weight gradients are to be done as paid says; the rest comes at the end.
func (s Shape) trail(stage, warmup int, paid func(i int) int) []Action {
	p := program{shape: s, actions: make([]Action, 0, 3*s.Micros)}
	weights := 0
	for i := range s.Micros + warmup {
		if i < s.Micros {
			p.put(Forward, stage, i)
		}
		if i < warmup {
			continue
		}
		p.put(BackwardInput, stage, i-warmup)
		for ; weights < paid(i-warmup); weights++ {
			p.put(BackwardWeight, stage, weights)
		}
	}
	for ; weights < s.Micros; weights++ {
		p.put(BackwardWeight, stage, weights)
	}
	return p.actions
}

// ZBV has two chunks a worker in a V, stages r and 2*workers-1-r on worker r, and a split
// backward (Qi et al., Pipeline Parallelism with Controllable Memory, NeurIPS 2024). It
// has no bubble when forward, input and weight gradient take as long, in the memory of
// 1F1B, for twice the messages.
func ZBV(s Shape) (Schedule, error) {
	workers, err := Options{Shape: s}.workers(2)
	if err != nil {
		return Schedule{}, err
	}
	out := Schedule{Workers: make([][]Action, workers)}
	for r := range out.Workers {
		v := vee{program: program{shape: s, actions: make([]Action, 0, 6*s.Micros)}, stage: [2]int{r, 2*workers - 1 - r}}
		v.run(workers, r)
		out.Workers[r] = v.actions
	}
	return out, nil
}

// vee is a worker's program with a chunk on the way down and one on the way up. It counts
// by chunk what was started.
type vee struct {
	program
	stage                 [2]int
	forward, back, weight [2]int
}

// The four counts are advanced for micro-batches past the last one, too, so that few
// micro-batches take their places in the schedule of many.
func (v *vee) next(op Op, chunk int, count *[2]int) {
	if count[chunk] < v.shape.Micros {
		v.put(op, v.stage[chunk], count[chunk])
	}
	count[chunk]++
}

func (v *vee) f(chunk int) { v.next(Forward, chunk, &v.forward) }
func (v *vee) i(chunk int) { v.next(BackwardInput, chunk, &v.back) }
func (v *vee) w(chunk int) { v.next(BackwardWeight, chunk, &v.weight) }

func (v *vee) run(workers, r int) {
	micros := max(v.shape.Micros, 2*workers-1) // the least that fills all workers
	for range 2*(workers-r) - 1 {
		v.f(0)
	}
	for range r {
		v.f(1)
		v.f(0)
	}
	for range workers - r {
		v.f(1)
		v.i(1)
		v.w(1)
	}
	for v.forward[1] < v.forward[0] || v.forward[0] < micros {
		if v.forward[0] < micros {
			v.f(0)
		}
		v.i(0)
		v.w(0)
		v.f(1)
		v.i(1)
		v.w(1)
	}
	for range r {
		v.i(0)
		v.i(1)
	}
	for range workers - r {
		v.i(0)
		v.w(0)
	}
	for chunk := 1; chunk >= 0; chunk-- {
		for v.weight[chunk] < v.back[chunk] {
			v.w(chunk)
		}
	}
}
