package schedule

// WithRecompute restores the activations of the chosen stages right ahead of each backward
// and of the receive of its gradient, so that it runs while the gradient is waited for
// (Chen et al., 2016; ahead of the gradient: Varuna, EuroSys 2022, Mario, PPoPP 2025).
func WithRecompute(s Schedule, chosen func(Replica, Stage) bool) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		list := make([]Action, 0, len(actions)+len(actions)/2)
		received := map[Action]bool{}
		for _, a := range actions {
			r := a.with(Recompute)
			backward := a.Op == ReceiveGradient || a.Op == Backward || a.Op == BackwardInput
			if backward && !received[r] && chosen(a.Replica, a.Stage) {
				received[r] = true
				list = append(list, r)
			}
			list = append(list, a)
		}
		return list
	})
}

// RecomputeInWaits moves each recomputation whose backward need not wait for its gradient
// into a wait for activations before, over the forwards between: the stage then keeps the
// activations of one more micro-batch for that long. It moves nothing where no wait is as
// long as half of it.
func RecomputeInWaits(s Schedule, t Timing) (Schedule, error) {
	line, err := Simulate(s, t)
	if err != nil {
		return Schedule{}, err
	}
	out := Schedule{Workers: make([][]Action, len(s.Workers)), Segments: s.Segments}
	for w, spans := range line.Workers {
		list := make([]Action, 0, len(spans))
		for i, span := range spans {
			list = append(list, span.Action)
			if span.Action.Op == Recompute {
				moveToWait(list, spans[:i+1], waitAfter(spans[i:]))
			}
		}
		out.Workers[w] = list
	}
	return out, nil
}

// waitAfter is how long the worker computes nothing after the first span.
func waitAfter(spans []Span) Nanos {
	for _, next := range spans[1:] {
		if !next.Action.Op.communicates() {
			return next.Start - spans[0].End
		}
	}
	return 0
}

// moveToWait moves the last action of the list to the longest wait since the backward
// before it, if that is longer than the wait where it is.
func moveToWait(list []Action, spans []Span, here Nanos) {
	last := len(list) - 1
	most, to := max(here, (spans[last].End-spans[last].Start)/2), last
	for k := last - 1; k > 0; k-- {
		op := list[k].Op
		if list[k] != spans[k].Action || (op != Forward && !op.communicates()) || list[k] == list[last].with(Forward) {
			break // a backward, its own forward, or what was moved already
		}
		if wait := spans[k].Start - spans[k-1].End; op == Forward && wait > most {
			most, to = wait, k
		}
	}
	for to > 0 && list[to-1].Op == ReceiveActivation {
		to-- // the receive stays next to its forward
	}
	r := list[last]
	copy(list[to+1:], list[to:last])
	list[to] = r
}
