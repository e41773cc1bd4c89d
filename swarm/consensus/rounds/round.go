package rounds

import (
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// Errors of entries that a round refuses.
var (
	// ErrStale marks what belongs to another round.
	ErrStale = errors.New("of another round")
	// ErrRefused marks what no honest node proposes, or what would leave too few replicas.
	ErrRefused = errors.New("refused")
)

// Round is a round under way. Its methods return changed copies.
type Round struct {
	// From is the step after which the round began, End the last one that replicas make in it unless it is closed. Steps after From take
	// from Stream.
	From   plan.Step   `json:"from"`
	End    plan.Step   `json:"end"`
	Stream plan.Stream `json:"stream"`
	// Closed has each replica end the round after its next inner step. It stays closed: some may have done so.
	Closed bool `json:"closed,omitempty"`
	// Hasty are replicas that had ended the round before it was closed, by the word of the first that has all messages, which closes it. No honest one does. Sent
	// is zero: it does not matter what such a one says of itself.
	Hasty []plan.Contradiction `json:"hasty,omitempty"`
	// Gathered has by replica which messages it has of whom; nil: it has not said.
	Gathered [][]plan.Part `json:"gathered"`
	// Due has a checkpoint made of the outer step.
	Due bool `json:"due,omitempty"`
	// LeftOut are the replicas that nobody waits for.
	LeftOut []LeftOut `json:"left_out,omitempty"`
}

// LeftOut says why a replica is not waited for.
type LeftOut struct {
	Replica plan.Replica `json:"replica"`
	Reason  string       `json:"reason"`
}

// First returns a plan's first round; nil where the plan has no local steps, or no steps.
func First(run plan.RunSpec, p plan.Plan) *Round {
	return begin(run, p, p.Start, p.Stream.Full(p.Start, run.Train.Micros))
}

// After returns the round after an outer step of the plan; nil after the last one.
func After(run plan.RunSpec, p plan.Plan, m plan.Merged) *Round {
	if m.Last {
		return nil
	}
	return begin(run, p, m.To, m.Stream.Full(m.To, run.Train.Micros))
}

func begin(run plan.RunSpec, p plan.Plan, from plan.Step, stream plan.Stream) *Round {
	if p.Local == nil || from >= run.Train.Steps {
		return nil
	}
	return &Round{From: from, End: p.Local.RoundEnd(from, run.Train.Steps), Stream: stream, Gathered: make([][]plan.Part, len(p.Replicas))}
}

// Gather takes a replica's word. Saying the same again changes nothing. A replica makes all inner steps of a round that is not closed: who has ended it before is not
// believed, and Hasty. Its seal in another one's word from before the close shows it. The sum of its messages does not: who is fast enough can compute what a slow one
// will have done by the close that such a word brings about.
func (r Round) Gather(g plan.Gathered) (Round, error) {
	switch {
	case g.From != r.From:
		return r, fmt.Errorf("gathered for the round after step %d, it is the one after step %d: %w", g.From, r.From, ErrStale)
	case g.Replica < 0 || int(g.Replica) >= len(r.Gathered) || len(g.Parts) != len(r.Gathered):
		return r, fmt.Errorf("gathered by replica %d, parts of %d, in a plan of %s: %w", g.Replica, len(g.Parts), plan.Count(len(r.Gathered), "replica"), ErrRefused)
	case len(g.Seals) != 0 && len(g.Seals) != len(r.Gathered):
		return r, fmt.Errorf("gathered by replica %d, seals of %d, in a plan of %s: %w", g.Replica, len(g.Seals), plan.Count(len(r.Gathered), "replica"), ErrRefused)
	case r.isOut(g.Replica):
		return r, fmt.Errorf("gathered by replica %d, which is left out: %w", g.Replica, ErrStale)
	case r.Gathered[g.Replica] != nil && slices.Equal(r.Gathered[g.Replica], g.Parts):
		return r, nil
	case r.Gathered[g.Replica] != nil:
		return r, fmt.Errorf("replica %d has gathered something else before: %w", g.Replica, ErrRefused)
	}
	whole, own := r.End-r.From, g.Parts[g.Replica]
	for q, part := range g.Parts {
		switch {
		case part.Steps > whole:
			return r, fmt.Errorf("replica %d has gathered %d inner steps of replica %d, a round of %d: %w", g.Replica, part.Steps, q, whole, ErrRefused)
		case part.Steps == 0 && part.Sum != plan.Hash{}:
			return r, fmt.Errorf("replica %d has gathered messages of no inner step of replica %d: %w", g.Replica, q, ErrRefused)
		case part.Steps == 0 && !r.isOut(plan.Replica(q)):
			return r, fmt.Errorf("replica %d has not gathered all messages of replica %d, which is awaited: %w", g.Replica, q, ErrStale)
		}
	}
	switch {
	case own.Steps < whole && !r.Closed:
		return r, fmt.Errorf("replica %d has ended the round after %d inner steps of %d, and nobody has closed it: %w", g.Replica, own.Steps, whole, ErrRefused)
	case slices.ContainsFunc(r.Hasty, func(c plan.Contradiction) bool {
		return c.Of == g.Replica && c.Has == own && c.Seal == g.Seal(g.Replica)
	}):
		return r, fmt.Errorf("replica %d had ended the round after %d inner steps of %d before it was closed: %w", g.Replica, own.Steps, whole, ErrRefused)
	}
	if !r.Closed {
		for q, part := range g.Parts {
			if part.Steps < whole && !r.isOut(plan.Replica(q)) {
				r.Hasty = append(r.Hasty, plan.Contradiction{By: g.Replica, Of: plan.Replica(q), Has: part, Seal: g.Seal(plan.Replica(q))})
			}
		}
		r.Closed = len(r.Hasty) > 0
	}
	r.Gathered = slices.Clone(r.Gathered)
	r.Gathered[g.Replica] = slices.Clone(g.Parts)
	r.Due = r.Due || g.Due && g.Replica == 0
	return r, nil
}

// Close has each replica end the round after its next inner step.
func (r Round) Close() Round {
	r.Closed = true
	return r
}

// LeaveOut has nobody wait for a replica any more. It is refused where fewer than half of the micro-batches would be waited for.
func (r Round) LeaveOut(p plan.Plan, out LeftOut) (Round, error) {
	switch {
	case out.Replica < 0 || int(out.Replica) >= len(r.Gathered):
		return r, fmt.Errorf("leave out replica %d of %d: %w", out.Replica, len(r.Gathered), ErrRefused)
	case r.isOut(out.Replica):
		return r, nil
	}
	next := r
	next.LeftOut = slices.Concat(r.LeftOut, []LeftOut{out})
	if !quorum(p, next.Awaited()) {
		return r, fmt.Errorf("leave out replica %d: the rest has fewer than half of the micro-batches: %w", out.Replica, ErrRefused)
	}
	return next, nil
}

// Awaited returns the replicas that are not left out, in order.
func (r Round) Awaited() (awaited []plan.Replica) {
	for q := range r.Gathered {
		if !r.isOut(plan.Replica(q)) {
			awaited = append(awaited, plan.Replica(q))
		}
	}
	return awaited
}

// Missing returns the awaited replicas that have not said what they have, in order. None is left in a round that can never be merged: those who are
// not in a dispute are no quorum.
func (r Round) Missing() []plan.Replica {
	return slices.DeleteFunc(r.Awaited(), func(q plan.Replica) bool { return r.Gathered[q] != nil })
}

func (r Round) isOut(replica plan.Replica) bool {
	return slices.ContainsFunc(r.LeftOut, func(out LeftOut) bool { return out.Replica == replica })
}

// quorum reports whether replicas have half of a step's micro-batches or more.
func quorum(p plan.Plan, replicas []plan.Replica) bool {
	all, some := 0, 0
	for r, pipe := range p.Replicas {
		all += pipe.Micros
		if slices.Contains(replicas, plan.Replica(r)) {
			some += pipe.Micros
		}
	}
	return 2*some >= all
}
