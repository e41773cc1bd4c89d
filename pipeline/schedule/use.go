package schedule

// Use is what a worker's program asks of the memory of one stage there.
type Use struct {
	// Slots are the most micro-batches in flight at once; at least one, for evaluations.
	Slots int
	// Owed is how many things have to be done for a micro-batch after its forward before
	// another one may have its slot: the weight gradient, and where there is a stage before,
	// the send of the input gradient, or its backward there where that stage is here too.
	Owed int
	// Split: input and weight gradients are computed apart.
	Split bool
}

// UseOf is the use that a worker's program, with its sends, makes of a stage.
func UseOf(program []Action, r Replica, st Stage) Use {
	u := Use{Slots: 1, Owed: 1}
	for _, a := range program {
		if a.HandsBack(r, st) {
			u.Owed = 2
		}
		u.Split = u.Split || a.Of(r, st) && a.Op == BackwardInput
	}
	owes := map[Micro]int{}
	for _, a := range program {
		switch {
		case a.Of(r, st) && a.Op == Forward:
			owes[a.Micro] = u.Owed
			u.Slots = max(u.Slots, len(owes))
		case a.HandsBack(r, st) || a.Of(r, st) && accumulates(a.Op):
			if owes[a.Micro]--; owes[a.Micro] == 0 {
				delete(owes, a.Micro)
			}
		}
	}
	return u
}

// Of tells whether an action is about a stage.
func (a Action) Of(r Replica, st Stage) bool {
	return a.Op != Step && a.Replica == r && a.Stage == st
}

// HandsBack tells whether the input gradient of a stage goes to the stage before with an
// action of its worker: sent, or read by the backward there.
func (a Action) HandsBack(r Replica, st Stage) bool {
	if a.Of(r, st) {
		return a.Op == SendGradient
	}
	return a.Of(r, st-1) && (a.Op == Backward || a.Op == BackwardInput)
}
