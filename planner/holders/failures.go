package holders

import (
	"slices"

	"pnode/planner/plan"
)

const (
	// MaxFailures bounds the holders that one member may be said not to get copies to: who gets to none of so many is cut off itself, or lies.
	MaxFailures = 8
	// failureMillis is for how long a pair is remembered, unless the member whose copies they are is started again: then copies are tried there
	// again. That the holder was started again is no reason: it might say so each time that it is found to take no copies.
	failureMillis = 10 * 60 * 1000
)

// Failure says that copies of what a peer computes did not get to a holder for some time.
type Failure struct {
	Peer   plan.PeerID `json:"peer"`
	Holder plan.PeerID `json:"holder"`
	// AtMillis is when that was said, by the clock of the run's log: see departures.Clock.
	AtMillis int64 `json:"at_ms"`
}

// Failures hold the pairs of members between which copies fail. It is a value: nothing reachable from it is ever changed.
type Failures []Failure

// Between reports whether copies of what a member computes do not get to another one.
func (f Failures) Between(peer, holder plan.PeerID) bool {
	return slices.ContainsFunc(f, func(c Failure) bool { return c.Peer == peer && c.Holder == holder })
}

// Of returns the members that copies of what a peer computes do not get to.
func (f Failures) Of(peer plan.PeerID) (holders []plan.PeerID) {
	for _, c := range f {
		if c.Peer == peer {
			holders = append(holders, c.Holder)
		}
	}
	return holders
}

// With returns the pairs with one more.
func (f Failures) With(c Failure) Failures { return append(slices.Clone(f), c) }

// At returns the pairs that still count at a time of the log's clock.
func (f Failures) At(millis int64) Failures {
	return f.without(func(c Failure) bool { return c.AtMillis+failureMillis <= millis })
}

// Restarted returns the pairs without those of copies of what a member computed that was started again.
func (f Failures) Restarted(peer plan.PeerID) Failures {
	return f.without(func(c Failure) bool { return c.Peer == peer })
}

// without returns the pairs that are not dropped; nil for none.
func (f Failures) without(drop func(Failure) bool) Failures {
	if !slices.ContainsFunc(f, drop) {
		return f
	}
	if left := slices.DeleteFunc(slices.Clone(f), drop); len(left) > 0 {
		return left
	}
	return nil
}
