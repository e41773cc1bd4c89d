package planner

import (
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// ReplanPercent is how much faster a step must become for a running plan to be replaced:
// a change costs a checkpoint, a reload and a stop of some seconds.
const ReplanPercent = 5

// Decision is an answer with its reason.
type Decision struct {
	Replan bool
	Reason string
}

// ShouldReplan tells whether the current plan should be replaced, given the members of
// now: at once when there is none or a member of it is gone or leaving; otherwise when
// the best plan's predicted step is at least ReplanPercent faster. An error is Make's:
// then there is nothing to change to.
func ShouldReplan(in Input, current plan.Plan) (Decision, error) {
	if current.Generation == 0 {
		return Decision{true, "there is no plan yet"}, nil
	}
	for _, peer := range current.Peers() {
		switch i := slices.IndexFunc(in.Members, func(m Member) bool { return m.Peer == peer }); {
		case i < 0:
			return Decision{true, fmt.Sprintf("%s is gone", peer.Short())}, nil
		case in.Members[i].Draining:
			return Decision{true, fmt.Sprintf("%s is leaving", in.Members[i].label())}, nil
		}
	}
	in.Previous = &current
	c, best, _, err := decide(in)
	if err != nil {
		return Decision{}, err
	}
	if c, err = c.stored(current); err != nil {
		return Decision{}, err
	}
	now, err := c.predict(current)
	if errors.Is(err, plan.ErrBadPlan) {
		return Decision{true, fmt.Sprintf("the plan cannot go on: %v", err)}, nil
	}
	if err != nil {
		return Decision{}, err
	}
	return weigh(now.Step, best.step()), nil
}

// weigh compares the steps of the current and of the best plan.
func weigh(now, then schedule.Nanos) Decision {
	gain := max(0, int64(now-then)) * 1000 / int64(max(now, 1))
	text := fmt.Sprintf("a new plan's step takes %s instead of %s, %s less", plan.Time(then), plan.Time(now), plan.Permille(gain))
	if gain >= ReplanPercent*10 {
		return Decision{true, text}
	}
	return Decision{false, fmt.Sprintf("%s; a change needs %d%%", text, ReplanPercent)}
}
