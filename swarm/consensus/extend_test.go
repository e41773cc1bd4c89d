package consensus

import (
	"errors"
	"testing"

	"pnode/planner/plan"
)

// TestExtend: an owner gives a run that is finished or stopped a later end; the learning rate keeps the one that it had.
func TestExtend(t *testing.T) {
	run := plan.RunSpec{Run: "run", Train: plan.TrainSpec{Steps: 100}}
	base := State{Run: &run, Owners: []plan.PeerID{"a"}, Epoch: 4, Finished: true, Sample: "text", Members: []Member{{Peer: "a"}, {Peer: "b"}}}
	goesOn, stopped := base, base
	goesOn.Finished, stopped.Finished, stopped.StopWanted = false, false, true
	for name, c := range map[string]struct {
		state State
		by    plan.PeerID
		steps plan.Step
		want  error
	}{
		"finished":           {base, "a", 150, nil},
		"stopped":            {stopped, "a", 150, nil},
		"by a member":        {base, "b", 150, ErrForbidden},
		"while it goes on":   {goesOn, "a", 150, ErrRejected},
		"to an earlier step": {base, "a", 90, ErrRejected},
		"far too far":        {base, "a", maxSteps + 1, ErrRejected},
		"before it began":    {State{Owners: base.Owners, Members: base.Members}, "a", 150, ErrRejected},
	} {
		e := Extend{Steps: c.steps}
		err := Authorize(c.state, Author{Peer: c.by}, e)
		next := c.state
		if err == nil {
			next, err = Apply(c.state, e)
		}
		if !errors.Is(err, c.want) || c.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		if c.want != nil {
			continue
		}
		if train := next.Run.Train; train.Steps != 150 || train.DecayEnd() != 100 || next.Finished || next.Sample != "" || next.Epoch != 5 {
			t.Errorf("%s: got %+v", name, next)
		}
		if again, err := Apply(next, e); err != nil || again.Epoch != next.Epoch {
			t.Errorf("%s, applied twice: %v", name, err)
		}
	}
	if run.Train.Steps != 100 {
		t.Error("the specification of the state before was changed")
	}
}
