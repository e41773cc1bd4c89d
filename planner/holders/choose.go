package holders

import (
	"cmp"
	"slices"

	"pnode/planner/plan"
)

// Option is a member that may keep the copy of a stage.
type Option struct {
	Peer plan.PeerID
	// Full reports that its disk has no room for the copy, Slow that a copy takes longer than SlowNanos to get there.
	Full, Slow bool
	// Shared counts what it has in common with the stage's node, see Common: the same event may take both away. It
	// does not matter for who is Laden and keeps its Share of copies already.
	Shared int
	Laden  bool
	// Near reports that it computes the stage or a neighbour of it: what takes one away may take its neighbours too.
	Near bool
	// Copies counts those that it keeps already.
	Copies int
}

// compare orders options, the better first.
func (o Option) compare(b Option) int {
	return cmp.Or(
		number(o.Full)-number(b.Full), number(o.Slow)-number(b.Slow), cmp.Compare(o.Shared, b.Shared),
		number(o.Near)-number(b.Near), cmp.Compare(o.Copies, b.Copies), cmp.Compare(o.Peer, b.Peer),
	)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Best returns the member that keeps the copy; not ok without one.
func Best(options []Option) (best Option, ok bool) {
	most := 0
	for _, o := range options {
		most = max(most, o.Shared)
	}
	for i, o := range options {
		if o.Laden {
			o.Shared = most // no better than any other
		}
		if i == 0 || o.compare(best) < 0 {
			best = o
		}
	}
	return best, len(options) > 0
}

// Share returns how many copies of so many stages a member keeps for where it stands: twice what each of the members
// would have, so that the only node at another site is not to hold all.
func Share(stages, members int) int { return 2 * ((stages + members - 1) / max(members, 1)) }

// Common counts the ties that two members share: networks, sites, owners, whatever may take both away. Both are sorted.
func Common(a, b []string) (n int) {
	for _, tie := range a {
		if _, ok := slices.BinarySearch(b, tie); ok {
			n++
		}
	}
	return n
}
