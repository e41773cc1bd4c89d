package holders

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"pnode/planner/plan"
)

// Option is a member that may keep the copy of a stage.
type Option struct {
	Peer plan.PeerID
	// Apart reports that copies of what the stage's node computes did not get there of late: it comes after all others.
	Apart bool
	// Full reports that its disk has no room for the copy, Slow that a copy takes longer than SlowNanos to get there.
	Full, Slow bool
	// Shared counts what it has in common with the stage's node, see Common: the same event may take both away. It
	// does not matter for who is Laden and keeps its Share of copies already.
	Shared int
	Laden  bool
	// Networks counts those of Shared that are networks.
	Networks int
	// Whole reports that it keeps the checkpoints with all layers anyway: as the holder of one it would be no copy more.
	Whole bool
	// Near reports that it computes the stage or a neighbour of it: what takes one away may take its neighbours too.
	Near bool
	// Spare reports that it computes nothing.
	Spare bool
	// Copies counts those that it keeps already.
	Copies int
}

// compare orders options, the better first.
func (o Option) compare(b Option) int {
	return cmp.Or(
		number(o.Apart)-number(b.Apart), number(o.Full)-number(b.Full), number(o.Slow)-number(b.Slow), cmp.Compare(o.Shared, b.Shared),
		number(o.Near)-number(b.Near), cmp.Compare(o.Copies, b.Copies), cmp.Compare(o.Peer, b.Peer),
	)
}

func number(b bool) int {
	if b {
		return 1
	}
	return 0
}

// relieves reports whether o may keep the copy instead of a member that keeps all layers anyway: it would keep nothing else. It is in as few
// networks of the stage's node: with one in another network, a copy is there as soon as a checkpoint is committed, and not only once it is whole.
// Where all compute, the copies stay together, so that an owner started alone goes on from them even where it keeps nothing whole.
func (o Option) relieves(whole Option) bool {
	return o.Spare && !o.Whole && !o.Apart && !o.Full && !o.Slow && !o.Laden && o.Networks <= whole.Networks
}

// Best returns the member that keeps the copy; not ok without one. It is none that keeps all layers anyway where a spare relieves it.
func Best(options []Option) (best Option, ok bool) {
	best, ok = first(options, func(Option) bool { return true })
	if best.Whole {
		if other, ok := first(options, func(o Option) bool { return o.relieves(best) }); ok {
			return other, true
		}
	}
	return best, ok
}

// first returns the best of the options that qualify; not ok without one.
func first(options []Option, qualifies func(Option) bool) (best Option, ok bool) {
	most := 0
	for _, o := range options {
		most = max(most, o.Shared)
	}
	for _, o := range options {
		if !qualifies(o) {
			continue
		}
		if o.Laden {
			o.Shared = most // no better than any other
		}
		if !ok || o.compare(best) < 0 {
			best, ok = o, true
		}
	}
	return best, ok
}

// Share returns how many copies of so many stages a member keeps for where it stands: twice what each of the members
// would have, so that the only node at another site is not to hold all.
func Share(stages, members int) int { return 2 * ((stages + members - 1) / max(members, 1)) }

// Common counts the ties that two members share, whatever may take both away, and those of them that are networks. Both are sorted.
func Common(a, b []string) (all, networks int) {
	for _, tie := range a {
		if _, ok := slices.BinarySearch(b, tie); ok {
			all++
			if !strings.HasPrefix(tie, invite) {
				networks++
			}
		}
	}
	return all, networks
}

const invite = "invite "

// Invite returns the tie of those that came by an invite.
func Invite(serial uint64) string { return fmt.Sprintf(invite+"%016x", serial) }
