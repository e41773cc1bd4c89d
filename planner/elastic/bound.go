package elastic

import (
	"fmt"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Bound names what sets the period of a decision: a stage that computes (From == To), a link
// that carries a message (Link), or memory that is short for a round trip.
type Bound struct {
	schedule.Critical
	// Stage computes the longest for a micro-batch, Busy.
	Stage int
	Busy  schedule.Nanos
	// BytesPerS of the link and Codec of the message, where a link sets the period.
	BytesPerS int64
	Codec     plan.Codec
	// Where memory sets it: From keeps InFlight micro-batches, Floor is the period that more
	// would reach, and Round the trip that they share.
	InFlight     int
	Floor, Round schedule.Nanos
}

// Memory reports whether the period would be shorter with more memory.
func (b Bound) Memory() bool { return !b.Link && b.From != b.To }

// bound returns what sets the period of a decision.
func (p Problem) bound(d Decision) Bound {
	b := Bound{Critical: d.Costs.Critical(d.Warmups), Floor: d.Costs.Floor()}
	b.Period = d.Period
	for i, s := range d.Costs.Stages {
		if busy := s.Micro() + s.Recompute; busy > b.Busy {
			b.Stage, b.Busy = i, busy
		}
	}
	switch {
	case b.Link:
		link, hop := p.Boundaries[b.From], d.Costs.Boundaries[b.From]
		b.Codec, b.BytesPerS = d.Codecs[b.From], link.Forth.BytesPerS
		if hop.Gradient.Transfer > hop.Activation.Transfer {
			b.BytesPerS = link.Back.BytesPerS
		}
	case b.Memory():
		b.InFlight = d.Warmups[b.From] + 1
		b.Round = schedule.Nanos(d.Warmups[b.From]-d.Warmups[b.To]+1) * b.Period
	}
	return b
}

// Text says for people what the bound is, with remedies; name returns how a stage is called.
func (b Bound) Text(name func(stage int) string) string {
	from, to := int(b.From), int(b.To)
	switch {
	case b.Link:
		return fmt.Sprintf("link %s → %s at %s: %s a micro-batch in %v, %s computes %s; put more layers on a stage, compress the boundary, or move it to a faster link",
			name(from), name(to), plan.Bandwidth(b.BytesPerS), plan.Time(b.Period), b.Codec, name(b.Stage), plan.Time(b.Busy))
	case b.Memory():
		return fmt.Sprintf("memory of %s: %d in flight share %s from there to %s and back, %s a micro-batch, %s with more",
			name(from), b.InFlight, plan.Time(b.Round), name(to), plan.Time(b.Period), plan.Time(b.Floor))
	}
	return fmt.Sprintf("computing: %s takes %s a micro-batch", name(b.Stage), plan.Time(b.Busy))
}
