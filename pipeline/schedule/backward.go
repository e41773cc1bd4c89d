package schedule

import "slices"

// SplitBackward computes input and weight gradient of every full backward apart, one right
// after the other: what is sent of the input gradient leaves earlier.
func SplitBackward(s Schedule) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		list := make([]Action, 0, 2*len(actions))
		for _, a := range actions {
			if a.Op == Backward {
				list = append(list, a.with(BackwardInput))
				a.Op = BackwardWeight
			}
			list = append(list, a)
		}
		return list
	})
}

// MergeBackward joins each input gradient with its weight gradient where nothing is
// computed between, and sends what is sent after both.
func MergeBackward(s Schedule) Schedule {
	return s.rewrite(func(actions []Action) []Action {
		list := slices.Clone(actions)
		for i, a := range list {
			if a.Op != BackwardInput {
				continue
			}
			k := i + 1
			for k < len(list) && list[k].Op.communicates() {
				k++
			}
			if k < len(list) && list[k] == a.with(BackwardWeight) {
				list[i].Op = Backward
				list[k].Op = 0 // dropped below: indices stay as they are meanwhile
			}
		}
		return slices.DeleteFunc(list, func(a Action) bool { return a.Op == 0 })
	})
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
