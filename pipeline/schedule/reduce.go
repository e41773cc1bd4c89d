package schedule

// ReduceInWaits hands each stage's gradient in, in the first slot in which its worker
// would compute nothing, after the stage's last weight gradient (Li and Hoefler, Chimera,
// SC 2021, section 3.2): without delay for what others wait for. Reductions that find no
// such slot come at the end.
func ReduceInWaits(s Schedule, t Timing) (Schedule, error) {
	line, err := Simulate(s, t)
	if err != nil {
		return Schedule{}, err
	}
	out := Schedule{Workers: make([][]Action, len(s.Workers)), Segments: s.Segments}
	for w, spans := range line.Workers {
		out.Workers[w] = reduceInWaits(spans)
	}
	return out, nil
}

func reduceInWaits(spans []Span) []Action {
	left := map[Action]int{} // reduction -> weight gradients to come
	for _, span := range spans {
		if accumulates(span.Action.Op) {
			left[span.Action.reduction()]++
		}
	}
	var due, list []Action
	for i, span := range spans {
		if i > 0 && len(due) > 0 && (span.Start > spans[i-1].End || span.Action.Op == Step) {
			list, due = append(list, due...), nil
		}
		list = append(list, span.Action)
		if r := span.Action.reduction(); accumulates(span.Action.Op) {
			if left[r]--; left[r] == 0 {
				due = append(due, r)
			}
		}
	}
	return append(list, due...)
}

// WithGather waits ahead of each stage's first forward for the parameters that its replicas
// updated in parts at the end of the step before, and have been exchanging since: the gather
// of a later stage is hidden by what the first micro-batch needs to reach it.
func WithGather(s Schedule) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		list := make([]Action, 0, len(actions)+1)
		gathered := map[Action]bool{}
		for _, a := range actions {
			g := Action{Op: Gather, Replica: a.Replica, Stage: a.Stage}
			if a.Op == Forward && !gathered[g] {
				gathered[g] = true
				list = append(list, g)
			}
			list = append(list, a)
		}
		return list
	})
}
