package schedule

// WithCommunication places sends and receives: a receive right before the compute
// action that needs the message, a send right after the one that makes it. Neighbouring
// stages on the same worker exchange nothing.
func WithCommunication(s Schedule) Schedule {
	holder := map[Action]int{} // by the reduction of a stage
	for w, actions := range s.Workers {
		for _, a := range actions {
			if a.Op == Forward {
				holder[a.reduction()] = w
			}
		}
	}
	remote := func(w int, a Action, step Stage) bool {
		a.Stage += step
		other, ok := holder[a.reduction()]
		return ok && other != w
	}
	out := Schedule{Workers: make([][]Action, len(s.Workers)), Segments: s.Segments}
	for w, actions := range s.Workers {
		list := make([]Action, 0, 3*len(actions))
		put := func(a Action, op Op) { a.Op = op; list = append(list, a) }
		for _, a := range actions {
			switch a.Op {
			case Forward:
				if remote(w, a, -1) {
					put(a, ReceiveActivation)
				}
				list = append(list, a)
				if remote(w, a, +1) {
					put(a, SendActivation)
				}
			case Backward, BackwardInput:
				if remote(w, a, +1) {
					put(a, ReceiveGradient)
				}
				list = append(list, a)
				if remote(w, a, -1) {
					put(a, SendGradient)
				}
			default:
				list = append(list, a)
			}
		}
		out.Workers[w] = list
	}
	return out
}

// WithReduceAndStep ends every worker's program with the optimizer step and places the
// reduction of each stage it holds right after that stage's last weight gradient and
// what is sent of it. What a program has of these it keeps.
func WithReduceAndStep(s Schedule) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		last := map[Action]int{} // reduction -> index of the last action of its stage
		for i, a := range actions {
			if a.Op != Step {
				last[a.reduction()] = i
			}
		}
		for _, a := range actions {
			if a.Op == Reduce {
				delete(last, a)
			}
		}
		list := make([]Action, 0, len(actions)+len(last)+1)
		for i, a := range actions {
			list = append(list, a)
			if end, ok := last[a.reduction()]; ok && end == i {
				list = append(list, a.reduction())
			}
		}
		if n := len(list); n == 0 || list[n-1].Op != Step {
			list = append(list, Action{Op: Step})
		}
		return list
	})
}

// reduction returns the REDUCE of the action's stage.
func (a Action) reduction() Action {
	return Action{Op: Reduce, Replica: a.Replica, Stage: a.Stage}
}

// with is the action with another op.
func (a Action) with(o Op) Action {
	a.Op = o
	return a
}

// rewrite changes every worker's program.
func (s Schedule) rewrite(change func([]Action) []Action) Schedule {
	out := Schedule{Workers: make([][]Action, len(s.Workers)), Segments: s.Segments}
	for w, actions := range s.Workers {
		out.Workers[w] = change(actions)
	}
	return out
}

// WithGather waits ahead of the first forward of each stage that is told to, for the parameters
// that its replicas updated in parts at the end of the step before, and have been exchanging
// since: the gather of a later stage is hidden by what the first micro-batch needs to reach it.
func WithGather(s Schedule, told func(Replica, Stage) bool) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		list := make([]Action, 0, len(actions)+1)
		gathered := map[Action]bool{}
		for _, a := range actions {
			g := Action{Op: Gather, Replica: a.Replica, Stage: a.Stage}
			if a.Op == Forward && !gathered[g] && told(a.Replica, a.Stage) {
				gathered[g] = true
				list = append(list, g)
			}
			list = append(list, a)
		}
		return list
	})
}

// WithRecompute restores the activations of the chosen stages right ahead of each backward
// and of the receive of its gradient, so that it runs while the gradient is waited for
// (Chen et al., 2016; ahead of the gradient: Varuna, EuroSys 2022, Mario, PPoPP 2025). Nothing
// comes between the two, whatever else the worker holds: so what is restored needs room once a
// stage, and no schedule is slower than with the same in its backwards. Where the gradient is
// made by the same worker there is no wait to use, and it is as fast.
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
