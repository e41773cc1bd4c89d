package link

import (
	"pnode/planner/plan"
)

// unreadableError says what was wrong with bytes of a peer. Connections carry nobody else's, unchanged: it is the
// peer's fault.
type unreadableError struct {
	fault  *plan.Fault
	reason error
}

func (e unreadableError) Error() string   { return e.reason.Error() }
func (e unreadableError) Unwrap() []error { return []error{e.fault, e.reason} }

// unreadable returns the fault of the peer that sent what cannot be decoded, or what nobody expects.
func (r *remote) unreadable(reason error) error {
	step := plan.Step(r.session.movement.step.Load())
	return unreadableError{&plan.Fault{Accused: r.id, Kind: plan.BadFrame, Step: step, Detail: reason.Error()}, reason}
}
