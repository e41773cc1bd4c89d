package pipeline

import (
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// next is the text of the course that the commit of a step names, empty for the present one.
func (w *Worker) next(step plan.Step) string {
	if w.cfg.Next == nil {
		return ""
	}
	course := w.cfg.Next(step)
	text := course.String()
	if text == w.cfg.Plan.ScheduleChoice().String() {
		return ""
	}
	if _, _, err := w.on(text); err != nil {
		w.cfg.Log.Warn("the steps go on as they did: the plan cannot take the other course", "step", step, "course", text, "cause", err)
		return ""
	}
	return text
}

// on is the plan with another course, and the programs that its workers have there.
func (w *Worker) on(text string) (plan.Plan, schedule.Schedule, error) {
	course, err := plan.ParseScheduleChoice(text)
	if err != nil {
		return plan.Plan{}, schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	p, err := w.cfg.Plan.WithSchedule(course)
	if err != nil {
		return plan.Plan{}, schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	list, err := Programs(p)
	if err == nil {
		err = w.cfg.Run.Model.CheckSegments(list.Segments)
	}
	if err != nil {
		return plan.Plan{}, schedule.Schedule{}, err
	}
	return p, list, nil
}

// follow takes the course that a commit names, between two steps: all workers take it after
// the same commit. What is held stays where it is, with as many slots as the new program needs.
func (w *Worker) follow(text string) error {
	plan, list, err := w.on(text)
	if err == nil {
		err = w.allGathered() // into memory that is about to get another shape
	}
	if err != nil {
		return err
	}
	for _, h := range w.holdings {
		h.raze() // plans do not count with it
	}
	for _, h := range w.holdings {
		if err := h.resize(list.Use(w.number, h.Replica, h.Stage)); err != nil {
			return err
		}
	}
	w.cfg.Plan, w.list = plan, list
	return w.prepare()
}
