package pipeline

import (
	"time"

	"pnode/pipeline/schedule"
	"pnode/pipeline/trace"
	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// note writes down that an action of a step's program began then and ends now.
func (w *Worker) note(step plan.Step, a schedule.Action, begin time.Time) {
	w.span(step, a, begin, time.Now())
}

// span writes down when an action of a step's program began and ended. Evaluations are no part of
// the program.
func (w *Worker) span(step plan.Step, a schedule.Action, begin, end time.Time) {
	if w.cfg.Trace == nil || w.heldOut(w.part(a.Micro).micro) {
		return
	}
	w.cfg.Trace.Add(trace.Span{
		Generation: w.cfg.Plan.Generation, Step: step, Worker: w.number, Action: a, Segments: w.list.Segments, Start: begin, End: end,
	})
}

// noteCopy writes down a copy of a message between the device and the host.
func (w *Worker) noteCopy(what string, h *holding, tag wire.Tag, begin, end time.Time) {
	if w.cfg.Trace == nil || w.heldOut(w.part(plan.Micro(tag.Index)).micro) {
		return
	}
	w.cfg.Trace.AddCopy(trace.Copy{
		What: what + " " + tag.Kind.String(), Generation: tag.Generation, Step: tag.Step, Worker: w.number,
		Replica: h.Replica, Stage: h.Stage, Index: tag.Index, Start: begin, End: end,
	})
}

// action is one of the stage's.
func (h *holding) action(op schedule.Op, micro plan.Micro) schedule.Action {
	return schedule.Action{Op: op, Replica: h.Replica, Stage: h.Stage, Micro: micro}
}
