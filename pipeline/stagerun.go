package pipeline

import (
	"fmt"

	"pnode/kernels"
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// stageRun holds what a stage has within one step: its micro-batches in flight, their messages and
// their times.
type stageRun struct {
	*StageRuntime
	prev, next *stageRun // the neighbouring stages on this worker; nil where another one has them
	slots      slots
	receiving  map[wire.Tag]*transfer // asked for, and not used yet
	sending    [][]*transfer          // by slot, gradients that may still be read
	times      StageTimes
	added      []plan.Micro // whose gradients the stage has
}

// newStageRuns begins a step of some stages, in the order of replicas and stages.
func newStageRuns(stages []*StageRuntime) []*stageRun {
	var all []*stageRun
	for _, h := range stages {
		u := h.use
		r := &stageRun{
			StageRuntime: h, slots: newSlots(u), sending: make([][]*transfer, u.Slots),
			receiving: map[wire.Tag]*transfer{}, times: StageTimes{StageID: h.StageID},
		}
		if prev := find(all, h.Replica, h.Stage-1); prev != nil {
			r.prev, prev.next = prev, r
		}
		all = append(all, r)
	}
	return all
}

// find returns stage s of replica r, or nil.
func find(stages []*stageRun, r plan.Replica, s plan.Stage) *stageRun {
	for _, h := range stages {
		if h.Replica == r && h.Stage == s {
			return h
		}
	}
	return nil
}

// slot returns the saved activations of a micro-batch in flight.
func (h *stageRun) slot(m plan.Micro) *model.Slot { return h.stack.Slot(h.slots.of(m)) }

// input, output and their gradients are the rows [part of B*T,C] of a part in flight.
func (h *stageRun) input(p part) []kernels.View      { return h.rows(p, h.slot(p.micro).Input()) }
func (h *stageRun) output(p part) []kernels.View     { return h.rows(p, h.slot(p.micro).Output()) }
func (h *stageRun) inputGrad(p part) []kernels.View  { return h.rows(p, h.slot(p.micro).InputGrad()) }
func (h *stageRun) outputGrad(p part) []kernels.View { return h.rows(p, h.slot(p.micro).OutputGrad()) }

func (h *stageRun) rows(p part, v kernels.View) []kernels.View { return h.stack.Rows(v, p.Segment) }

// action returns an action of this stage.
func (h *stageRun) action(op schedule.Op, micro plan.Micro) schedule.Action {
	return schedule.Action{Op: op, Replica: h.Replica, Stage: h.Stage, Micro: micro}
}

// slots maps the micro-batches in flight on a stage to its stack's sets of saved activations. A slot
// is free again when its micro-batch has done all that it owes (schedule.Use).
type slots struct {
	owed int // by each micro-batch
	free []int
	used map[plan.Micro]inFlight
}

type inFlight struct{ slot, owes int }

func newSlots(u schedule.Use) slots {
	s := slots{owed: u.Owed, used: map[plan.Micro]inFlight{}}
	for i := u.Slots - 1; i >= 0; i-- {
		s.free = append(s.free, i)
	}
	return s
}

// take returns a micro-batch a slot, unless it has one.
func (s *slots) take(m plan.Micro) error {
	if _, has := s.used[m]; has {
		return nil
	}
	if len(s.free) == 0 {
		return fmt.Errorf("pipeline: micro-batch %d finds all %d activation slots in use", m, len(s.used))
	}
	s.used[m] = inFlight{slot: s.free[len(s.free)-1], owes: s.owed}
	s.free = s.free[:len(s.free)-1]
	return nil
}

// of returns the slot of a micro-batch in flight; a valid schedule never asks for another.
func (s *slots) of(m plan.Micro) int {
	f, ok := s.used[m]
	if !ok {
		panic(fmt.Sprintf("pipeline: micro-batch %d holds no slot", m))
	}
	return f.slot
}

// paid notes that one of the things that a micro-batch owes is done.
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
