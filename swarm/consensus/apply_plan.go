package consensus

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

var errNoRun = errors.New("no run is set")

func (e SetPlan) apply(s State) (State, error) {
	encoded := e.Plan.Encode()
	if s.Plan.Generation != 0 && e.Term == s.Term && bytes.Equal(encoded, s.Plan.Encode()) {
		return s, nil
	}
	if err := e.fences(s); err != nil {
		return s, fmt.Errorf("set plan %d: %w", e.Plan.Generation, err)
	}
	if len(encoded) > plan.MaxPlanBytes {
		return s, fmt.Errorf("set plan %d: %d bytes, at most %d", e.Plan.Generation, len(encoded), plan.MaxPlanBytes)
	}
	if err := errors.Join(e.Plan.Validate(s.Run.Model.Layers(), s.Run.Train.Micros), e.Plan.CheckTied(s.Run.Model)); err != nil {
		return s, fmt.Errorf("set plan %d: %w", e.Plan.Generation, err)
	}
	if err := e.checkPlacements(s); err != nil {
		return s, fmt.Errorf("set plan %d: %w", e.Plan.Generation, err)
	}
	if len(e.Reasons) > maxReasons || slices.ContainsFunc(e.Reasons, func(r string) bool { return len(r) > maxText }) {
		return s, fmt.Errorf("set plan %d: more than %d reasons, or one over %d bytes", e.Plan.Generation, maxReasons, maxText)
	}
	s.Plan, s.Term, s.PlanEpoch, s.Reasons = e.Plan, e.Term, e.Epoch, e.Reasons
	s.PlanPauses, s.Pending = s.PauseWanted, nil
	return s, nil
}

// fences refuses a plan that was made from another state than s.
func (e SetPlan) fences(s State) error {
	switch {
	case s.Run == nil:
		return errNoRun
	case e.Plan.Run != s.Run.Run:
		return fmt.Errorf("it is for run %q, this is %q", wire.Clip(string(e.Plan.Run), maxName), s.Run.Run)
	case s.Finished:
		return errors.New("the run is finished")
	case s.StopWanted:
		return errors.New("the run is to stop")
	case e.Plan.Generation != s.Plan.Generation+1:
		return fmt.Errorf("generation %d follows %d: %w", e.Plan.Generation, s.Plan.Generation, ErrStale)
	case e.Term < s.Term:
		return fmt.Errorf("term %d, the plan in force is of term %d: %w", e.Term, s.Term, ErrStale)
	case e.Epoch != s.Epoch:
		return fmt.Errorf("epoch %d of the roster, it is at %d: %w", e.Epoch, s.Epoch, ErrStale)
	case e.Plan.Start != s.Checkpoint.Step:
		return fmt.Errorf("starts from step %d, the newest checkpoint is of %d: %w", e.Plan.Start, s.Checkpoint.Step, ErrStale)
	}
	return nil
}

// checkPlacements wants each stage on an active member and its copy with a member.
func (e SetPlan) checkPlacements(s State) error {
	for r, pipe := range e.Plan.Replicas {
		for i, p := range pipe.Stages {
			if m, ok := s.Member(p.Peer); !ok || m.State != Active {
				return fmt.Errorf("replica %d stage %d is on %q, which is not active", r, i, wire.Clip(string(p.Peer), maxName))
			}
			if m, ok := s.Member(p.Holder); p.Holder != "" && (!ok || m.State == Gone) {
				return fmt.Errorf("replica %d stage %d is held by %q, which is not in the run", r, i, wire.Clip(string(p.Holder), maxName))
			}
			if !name(p.Device) {
				return fmt.Errorf("replica %d stage %d: device name of %d bytes, want 1 to %d", r, i, len(p.Device), maxName)
			}
		}
	}
	return nil
}
