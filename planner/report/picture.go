package report

import (
	"errors"
	"fmt"
	"io"

	"pnode/pipeline/schedule"
	"pnode/pipeline/schedule/draw"
	"pnode/planner"
	"pnode/planner/plan"
)

// SVG draws the plan's step as it is predicted, a row for each device. Reductions between replicas, the commit and the
// update follow what is drawn. Errors wrap draw.ErrTooLarge or plan.ErrBadPlan.
func (r Report) SVG(w io.Writer) error {
	if actions := 2 * len(r.Devices) * r.Micros; actions > draw.MaxSpans {
		return fmt.Errorf("%w: %d actions, at most %d are drawn: ask for fewer micro-batches", draw.ErrTooLarge, actions, draw.MaxSpans)
	}
	list, err := r.plan.Programs()
	if err != nil {
		return err
	}
	timing, err := planner.Timing(r.in, r.plan, planner.Measured{})
	if err != nil {
		return err
	}
	line, err := schedule.Simulate(list, timing)
	if err != nil {
		return errors.Join(plan.ErrBadPlan, err)
	}
	names := make([]string, len(r.Devices))
	for i, d := range r.Devices {
		names[i] = plan.DeviceOf(d.Node, d.Title)
	}
	title := fmt.Sprintf("%s: %s of %s, schedule %s", r.Model, plan.Count(r.Replicas, "replica"), plan.Count(r.Stages, "stage"), shortly(r.Schedule))
	notes := []string{
		fmt.Sprintf("the passes take %s of a step of %s; %s tokens/s", plan.Time(line.Makespan), plan.Time(schedule.Nanos(r.StepNanos)), rate(r.TokensPerS)),
		"bound by " + r.Bound,
	}
	return draw.SVG(w, draw.Panel{Title: title, Notes: notes, Names: names, Line: line, Segments: list.Segments})
}
