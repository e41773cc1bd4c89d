package pipeline

import (
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner"
)

// slots maps the micro-batches in flight on a stage to its stack's sets of saved
// activations. A slot is free again when all that its micro-batch still owes is done: the
// weight gradient, and where there is a stage before, the send of the input gradient, or
// its backward there where that stage is on the same worker.
type slots struct {
	owed int // by each micro-batch
	free []int
	used map[planner.Micro]inFlight
}

type inFlight struct{ slot, owes int }

// newSlots sizes the slots of a stage for its worker's program.
func newSlots(program []schedule.Action, h planner.Holding) slots {
	s := slots{owed: 1, used: map[planner.Micro]inFlight{}}
	for _, a := range program {
		if handsBack(a, h) {
			s.owed = 2
			break
		}
	}
	for i := s.peak(program, h) - 1; i >= 0; i-- {
		s.free = append(s.free, i)
	}
	return s
}

// is tells whether an action is about this stage.
func is(a schedule.Action, h planner.Holding) bool {
	return a.Op != schedule.Step && a.Replica == h.Replica && a.Stage == h.Stage
}

// handsBack tells whether the input gradient of a stage goes to the stage before with an
// action of its worker: sent, or read by the backward there.
func handsBack(a schedule.Action, h planner.Holding) bool {
	if is(a, h) {
		return a.Op == schedule.SendGradient
	}
	before := planner.Holding{Replica: h.Replica, Stage: h.Stage - 1}
	return is(a, before) && (a.Op == schedule.Backward || a.Op == schedule.BackwardInput)
}

// peak is the most micro-batches in flight at once; at least one, for evaluations.
func (s *slots) peak(program []schedule.Action, h planner.Holding) int {
	owes, peak := map[planner.Micro]int{}, 1
	for _, a := range program {
		switch {
		case is(a, h) && a.Op == schedule.Forward:
			owes[a.Micro] = s.owed
			peak = max(peak, len(owes))
		case handsBack(a, h) || is(a, h) && (a.Op == schedule.Backward || a.Op == schedule.BackwardWeight):
			if owes[a.Micro]--; owes[a.Micro] == 0 {
				delete(owes, a.Micro)
			}
		}
	}
	return peak
}

// count is how many slots there are.
func (s *slots) count() int { return len(s.free) + len(s.used) }

func (s *slots) take(m planner.Micro) (int, error) {
	if len(s.free) == 0 {
		return 0, fmt.Errorf("pipeline: micro-batch %d finds all %d activation slots in use", m, len(s.used))
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.used[m] = inFlight{slot: slot, owes: s.owed}
	return slot, nil
}

// of is the slot of a micro-batch in flight; a valid schedule never asks for another.
func (s *slots) of(m planner.Micro) int {
	f, ok := s.used[m]
	if !ok {
		panic(fmt.Sprintf("pipeline: micro-batch %d holds no slot", m))
	}
	return f.slot
}

// paid notes that one of the things a micro-batch owes is done.
func (s *slots) paid(m planner.Micro) {
	f := s.used[m]
	f.owes--
	if s.used[m] = f; f.owes <= 0 {
		s.drop(m)
	}
}

// drop frees the slot whatever is owed: an evaluation has no backward.
func (s *slots) drop(m planner.Micro) {
	s.free = append(s.free, s.of(m))
	delete(s.used, m)
}
