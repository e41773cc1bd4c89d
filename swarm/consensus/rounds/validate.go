package rounds

import (
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// Validate returns an error for a round under way, or a newest outer step, that no entries have led to under the plan: a snapshot may
// have anything. Both may be nil.
func Validate(run plan.RunSpec, p plan.Plan, r *Round, m *plan.Merged) error {
	if p.Local == nil && (r != nil || m != nil) {
		return errors.New("a round of a plan without local steps")
	}
	if m != nil {
		if err := checkMerged(run, p, *m); err != nil {
			return fmt.Errorf("outer step of the round after step %d: %w", m.From, err)
		}
	}
	if r == nil {
		return nil
	}
	if err := r.check(run, p); err != nil {
		return fmt.Errorf("round after step %d: %w", r.From, err)
	}
	switch {
	case m == nil && r.From != p.Start:
		return fmt.Errorf("round after step %d: the first one is after step %d", r.From, p.Start)
	case m != nil && (m.Last || m.To != r.From):
		return fmt.Errorf("round after step %d: the newest outer step is of step %d, the plan's last: %t", r.From, m.To, m.Last)
	}
	return nil
}

func (r Round) check(run plan.RunSpec, p plan.Plan) error {
	n := len(p.Replicas)
	switch {
	case r.From < p.Start || r.End <= r.From || r.End > run.Train.Steps || r.End-r.From > p.Local.Every:
		return fmt.Errorf("up to step %d, in a plan from step %d with rounds of %d", r.End, p.Start, p.Local.Every)
	case len(r.Gathered) != n || len(r.LeftOut) >= n:
		return fmt.Errorf("words of %d and %d left out of %s", len(r.Gathered), len(r.LeftOut), plan.Count(n, "replica"))
	}
	for q, parts := range r.Gathered {
		if parts == nil {
			continue
		}
		if err := checkParts(parts, n, r.End-r.From); err != nil {
			return fmt.Errorf("replica %d: %w", q, err)
		}
		if parts[q].Steps < r.End-r.From && !r.Closed {
			return fmt.Errorf("replica %d has ended the round after %d inner steps, and it is not closed", q, parts[q].Steps)
		}
	}
	if len(r.Hasty) > 0 && !r.Closed || len(r.Hasty) > n || slices.ContainsFunc(r.Hasty, func(c plan.Contradiction) bool {
		return min(c.By, c.Of) < 0 || int(max(c.By, c.Of)) >= n || c.By == c.Of || c.Has.Steps >= r.End-r.From || c.Sent != plan.Part{}
	}) {
		return fmt.Errorf("%d of %s had ended the round early, or others, or it is not closed", len(r.Hasty), plan.Count(n, "replica"))
	}
	for i, out := range r.LeftOut {
		if out.Replica < 0 || int(out.Replica) >= n || slices.ContainsFunc(r.LeftOut[:i], func(o LeftOut) bool { return o.Replica == out.Replica }) {
			return fmt.Errorf("replica %d of %d is left out, or twice", out.Replica, n)
		}
	}
	if !quorum(p, r.Awaited()) {
		return fmt.Errorf("replicas %v are awaited, who are no quorum", r.Awaited())
	}
	return r.Stream.Validate()
}

func checkMerged(run plan.RunSpec, p plan.Plan, m plan.Merged) error {
	switch {
	case m.Generation != p.Generation || m.From < p.Start || m.To <= m.From || m.To > run.Train.Steps || m.To-m.From > p.Local.Every:
		return fmt.Errorf("to step %d of generation %d, in generation %d from step %d with rounds of %d", m.To, m.Generation, p.Generation, p.Start, p.Local.Every)
	case len(m.Disputed) > len(p.Replicas) || slices.ContainsFunc(m.Disputed, func(q plan.Replica) bool { return q < 0 || int(q) >= len(p.Replicas) }):
		return fmt.Errorf("replicas %v are in a dispute, of %d", m.Disputed, len(p.Replicas))
	case len(m.Contradictions) > plan.MaxContradictions || slices.ContainsFunc(m.Contradictions, func(c plan.Contradiction) bool {
		return min(c.By, c.Of) < 0 || int(max(c.By, c.Of)) >= len(p.Replicas) || c.By == c.Of || max(c.Has.Steps, c.Sent.Steps) > p.Local.Every
	}):
		return fmt.Errorf("%d contradictions of %s, or some of others", len(m.Contradictions), plan.Count(len(p.Replicas), "replica"))
	}
	if err := checkParts(m.Parts, len(p.Replicas), m.To-m.From); err != nil {
		return err
	}
	if !quorum(p, m.Counted()) {
		return fmt.Errorf("replicas %v are counted, who are no quorum", m.Counted())
	}
	return m.Stream.Validate()
}

// checkParts wants one of each replica, of so many steps at most.
func checkParts(parts []plan.Part, replicas int, steps plan.Step) error {
	if len(parts) != replicas || slices.ContainsFunc(parts, func(part plan.Part) bool { return part.Steps > steps }) {
		return fmt.Errorf("parts of %d in %d steps, of %s", len(parts), steps, plan.Count(replicas, "replica"))
	}
	return nil
}

// Rest returns the stream after a step of a plan without local steps: what the plan began with, less what its steps took. It stays as it was
// in a run that has none, and up to the plan's start.
func Rest(run plan.RunSpec, p plan.Plan, step plan.Step) plan.Stream {
	micros := run.Train.Micros
	if !run.Train.Sync.Local || step <= p.Start {
		return p.Stream
	}
	taken := []plan.MicroRange{{End: int64(step-p.Start) * int64(micros)}}
	return p.Stream.Full(p.Start, micros).Without(taken).Brief(step, micros)
}
