package schedule

// WithCommunication places sends and receives: a receive right before the compute
// action that needs the message, a send right after the one that makes it. Neighbouring
// stages on the same worker exchange nothing.
func WithCommunication(s Schedule) Schedule {
	type place struct {
		replica Replica
		stage   Stage
	}
	holder := map[place]int{}
	for w, actions := range s.Workers {
		for _, a := range actions {
			if a.Op == Forward {
				holder[place{a.Replica, a.Stage}] = w
			}
		}
	}
	remote := func(w int, a Action, step Stage) bool {
		other, ok := holder[place{a.Replica, a.Stage + step}]
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

// reduction is that of the action's stage.
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
