package pipeline

import (
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// slots maps the micro-batches in flight on a stage to its stack's sets of saved
// activations. A slot is free again when all that its micro-batch still owes is done
// (schedule.Use).
type slots struct {
	owed int // by each micro-batch
	free []int
	used map[plan.Micro]inFlight
}

type inFlight struct{ slot, owes int }

// newSlots makes the slots that a worker's program uses of a stage.
func newSlots(u schedule.Use) slots {
	s := slots{owed: u.Owed, used: map[plan.Micro]inFlight{}}
	for i := u.Slots - 1; i >= 0; i-- {
		s.free = append(s.free, i)
	}
	return s
}

// ready tells whether a micro-batch has a slot, or one is free for it.
func (s *slots) ready(m plan.Micro) bool {
	_, has := s.used[m]
	return has || len(s.free) > 0
}

// take gives a micro-batch a slot, or the one that it has.
func (s *slots) take(m plan.Micro) (int, error) {
	if f, has := s.used[m]; has {
		return f.slot, nil
	}
	if len(s.free) == 0 {
		return 0, fmt.Errorf("pipeline: micro-batch %d finds all %d activation slots in use", m, len(s.used))
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	s.used[m] = inFlight{slot: slot, owes: s.owed}
	return slot, nil
}

// of is the slot of a micro-batch in flight; a valid schedule never asks for another.
func (s *slots) of(m plan.Micro) int {
	f, ok := s.used[m]
	if !ok {
		panic(fmt.Sprintf("pipeline: micro-batch %d holds no slot", m))
	}
	return f.slot
}

// paid notes that one of the things a micro-batch owes is done.
func (s *slots) paid(m plan.Micro) {
	f := s.used[m]
	f.owes--
	if s.used[m] = f; f.owes <= 0 {
		s.drop(m)
	}
}

// drop frees the slot whatever is owed: an evaluation has no backward.
func (s *slots) drop(m plan.Micro) {
	s.free = append(s.free, s.of(m))
	delete(s.used, m)
}
