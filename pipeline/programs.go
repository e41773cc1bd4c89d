package pipeline

import (
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Programs are the action lists of a plan's workers, in the order of plan.Seats. Errors wrap
// ErrBadConfig.
func Programs(p plan.Plan) (schedule.Schedule, error) {
	s, err := p.Programs()
	if err != nil {
		return schedule.Schedule{}, fmt.Errorf("%w: %w", ErrBadConfig, err)
	}
	return s, nil
}
