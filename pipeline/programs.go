package pipeline

import (
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner"
)

// Programs are the action lists of a plan's workers, in the order of plan.Seats. Errors wrap
// ErrBadConfig.
func Programs(p planner.Plan) (schedule.Schedule, error) {
	s, err := p.Programs()
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	return s, nil
}
