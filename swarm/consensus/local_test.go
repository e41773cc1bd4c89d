package consensus

import (
	"errors"
	"strings"
	"testing"

	"pnode/planner/plan"
)

// TestNoLocalStepsInARunThatHasNone: neither a run nor a plan gets them, nor what they leave.
func TestNoLocalStepsInARunThatHasNone(t *testing.T) {
	run := testRun()
	run.Spec.Train.Sync.Local = true
	if _, err := Apply(State{}, run); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "local steps") {
		t.Errorf("a run: %v", err)
	}
	s := planned(t)
	for what, change := range map[string]func(p *plan.Plan){
		"a replica's state": func(p *plan.Plan) { p.Replicas[0].Own = &plan.Own{} },
		"a stream":          func(p *plan.Plan) { p.Stream.Fresh = 7 },
	} {
		next := s.Plan
		next.Generation, next.Replicas = 2, []plan.Pipeline{s.Plan.Replicas[0]}
		change(&next)
		if _, err := Apply(s, SetPlan{Epoch: s.Epoch, Term: 1, Plan: next}); !errors.Is(err, ErrRejected) || !strings.Contains(err.Error(), "local steps") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
