package change

import (
	"fmt"
	"math"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// shortStop is how long a change of plan stops the steps at least where none was seen and no state moves: all stages are
// saved, the log agrees on the plan, and the first step of it begins with empty stages.
const shortStop schedule.Nanos = 1e9

// Change compares a plan that runs with one that would take its place.
type Change struct {
	// Now is the predicted step of the plan that runs, Then that of the other one.
	Now, Then schedule.Nanos
	// Bytes of state go to nodes that lack it, which takes lines the time Move.
	Bytes int64
	Move  schedule.Nanos
}

// Outlook says for how long the next plan is of use, and how long earlier changes have stopped the steps.
type Outlook struct {
	// Left counts the steps that the run still has to do.
	Left plan.Step
	// Lasts is how long it takes until a member leaves or is lost: a plan is of use for no longer.
	Lasts schedule.Nanos
	// Stop is how long earlier changes of the run stopped the steps in the median; 0 where there was none.
	Stop schedule.Nanos
}

// stop returns how long a change is expected to stop the steps, and why.
func (c Change) stop(o Outlook) (stop schedule.Nanos, why string) {
	stop, why = o.Stop, "as earlier changes did"
	if o.Stop <= 0 {
		stop, why = shortStop+c.Now, "as is assumed before the first change"
	}
	if c.Move > stop {
		stop, why = c.Move, fmt.Sprintf("for %s of state on the way", plan.Size(c.Bytes))
	}
	return stop, why
}

// steps returns how many steps the other plan is of use for, and why no more.
func (c Change) steps(o Outlook) (n plan.Step, why string) {
	if lasts := plan.Step(max(o.Lasts, 0) / max(c.Then, 1)); lasts < o.Left {
		return lasts, "before a member leaves again"
	}
	return o.Left, "to the end of the run"
}

// Pays reports whether a change gains more time than it takes, and says why.
func (c Change) Pays(o Outlook) (pays bool, why string) {
	stop, because := c.stop(o)
	steps, until := c.steps(o)
	gain := max(0, c.Now-c.Then)
	pays = gain > 0 && uint64(steps) > uint64(stop/gain) // gain * steps > stop, without its overflow
	total := schedule.Nanos(math.MaxInt64)
	if n := schedule.Nanos(min(steps, math.MaxInt32)); gain <= total/max(n, 1) {
		total = gain * n
	}
	return pays, fmt.Sprintf("that gains %s in %s %s, and a change stops them for %s, %s",
		plan.Time(total), plan.Count(int(min(steps, math.MaxInt32)), "step"), until, plan.Time(stop), because)
}

// Decision is an answer with its reason.
type Decision struct {
	Replan bool
	Reason string
	// Change is what is gained and what moves, where the current plan could go on; else zero.
	Change Change
}

// Pays returns the decision once the cost of a change is weighed: what is gained until the plan is of no more use must be
// more than the time for which steps stop. What cannot go on does not have to pay.
func (d Decision) Pays(o Outlook) Decision {
	if d.Replan && d.Change != (Change{}) {
		pays, why := d.Change.Pays(o)
		d.Replan, d.Reason = pays, d.Reason+": "+why
	}
	return d
}
