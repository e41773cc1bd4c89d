package schedule

// Use holds what a worker's program asks of the memory of one stage there.
type Use struct {
	// Slots are the most micro-batches in flight at once; at least one, for evaluations. With
	// segments they are those of which any segment is.
	Slots int
	// Owed is how many things have to be done for a micro-batch after its forward before
	// another one may have its slot: the weight gradient, and where there is a stage before,
	// the send of the input gradient, or its backward there where that stage is here too.
	Owed int
	// Split: input and weight gradients are computed apart. With segments they always are: the
	// weight gradient of a whole sequence comes with the backward of its first segment.
	Split bool
	// Segments are those of the schedule.
	Segments int
}

// Use is the use that a worker's program, with its sends, makes of a stage.
func (s Schedule) Use(worker int, r Replica, st Stage) Use {
	program, n := s.Workers[worker], max(s.Segments, 1)
	u := Use{Slots: 1, Owed: 1, Split: n > 1, Segments: s.Segments}
	for _, a := range program {
		if a.HandsBack(r, st) {
			u.Owed = 2
		}
		u.Split = u.Split || a.Of(r, st) && a.Op == BackwardInput
	}
	u.Owed *= n
	owes := map[Micro]int{}
	for _, a := range program {
		m, segment := s.Sequence(a.Micro)
		switch {
		case a.Of(r, st) && a.Op == Forward && segment == 0:
			owes[m] = u.Owed
			u.Slots = max(u.Slots, len(owes))
		case a.HandsBack(r, st) || a.Of(r, st) && accumulates(a.Op):
			if owes[m]--; owes[m] == 0 {
				delete(owes, m)
			}
		}
	}
	return u
}

// Of reports whether an action is about a stage.
func (a Action) Of(r Replica, st Stage) bool {
	return a.Op != Step && a.Replica == r && a.Stage == st
}

// HandsBack reports whether the input gradient of a stage goes to the stage before with an
// action of its worker: sent, or read by the backward there.
func (a Action) HandsBack(r Replica, st Stage) bool {
	if a.Of(r, st) {
		return a.Op == SendGradient
	}
	return a.Of(r, st-1) && (a.Op == Backward || a.Op == BackwardInput)
}
