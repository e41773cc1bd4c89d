package pipeline

import (
	"errors"
	"testing"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// TestASubstituteRepeatsFromItsStartOn: a coordinator may have died before its newest commit, of the checkpoint's step, had come to all. So that
// one is repeated where nobody has a later one, and the later ones where somebody has.
func TestASubstituteRepeatsFromItsStartOn(t *testing.T) {
	var commits Commits
	commit := func(step plan.Step) wire.Commit { return wire.Commit{Step: step, Loss: float64(step)} }
	for step := plan.Step(11); step <= 14; step++ {
		commits.Put(3, commit(step))
	}
	lacking := errors.New("nobody has it")
	ask := func(step plan.Step) (wire.Commit, error) {
		if step != 15 {
			return wire.Commit{}, lacking
		}
		return commit(15), nil
	}
	for _, c := range []struct {
		start, newest, taken plan.Step
		made                 []plan.Step
		err                  error
	}{
		{start: 12, newest: 12, taken: 12},
		{start: 12, newest: 13, made: []plan.Step{13}},
		{start: 12, newest: 15, made: []plan.Step{13, 14, 15}}, // one that has not come here
		{start: 10, newest: 0},                                 // nobody has any
		{start: 13, newest: 16, made: []plan.Step{14, 15, 16}}, // nor the one before
		{start: 12, newest: 17, err: lacking},
	} {
		taken, made, err := commits.Repeated(c.newest, commit(c.newest), plan.Plan{Generation: 3, Start: c.start}, ask)
		if !errors.Is(err, c.err) {
			t.Errorf("after step %d, up to %d: %v", c.start, c.newest, err)
		}
		if taken != commit(c.taken) || len(made) != len(c.made) {
			t.Errorf("after step %d, up to %d: step %d was taken, and %d were made", c.start, c.newest, taken.Step, len(made))
			continue
		}
		for i, step := range c.made {
			if made[i] != commit(step) {
				t.Errorf("after step %d, up to %d: %+v in the place of step %d", c.start, c.newest, made[i], step)
			}
		}
	}
}
