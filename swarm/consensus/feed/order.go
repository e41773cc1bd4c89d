package feed

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"pnode/planner/plan"
)

// Order returns the voters in the order in which a follower asks them to feed it: by rendezvous hashing, so that
// followers spread evenly and only those of a voter that goes move on. The leader comes last. The follower itself is
// left out.
func Order(self plan.PeerID, voters []plan.PeerID, leader plan.PeerID) []plan.PeerID {
	type ranked struct {
		peer  plan.PeerID
		leads bool
		hash  uint64
	}
	var all []ranked
	for _, p := range voters {
		if p != self {
			sum := sha256.Sum256([]byte(string(self) + "\x00" + string(p)))
			all = append(all, ranked{p, p == leader, binary.LittleEndian.Uint64(sum[:])})
		}
	}
	slices.SortFunc(all, func(a, b ranked) int {
		switch {
		case a.leads != b.leads && a.leads:
			return 1
		case a.leads != b.leads:
			return -1
		}
		return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.peer, b.peer))
	})
	var order []plan.PeerID
	for _, r := range all {
		if !slices.Contains(order, r.peer) {
			order = append(order, r.peer)
		}
	}
	return order
}
