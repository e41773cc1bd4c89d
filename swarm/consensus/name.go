package consensus

import (
	"slices"

	"pnode/planner/plan"
)

// NameOf returns what people call a peer: the name of its machine, followed by the end of the peer ID where
// another member has the same name. Without a valid name it is that end alone. A member that is gone takes
// no name away from the others.
func (s State) NameOf(peer plan.PeerID) string {
	m, ok := s.Member(peer)
	if !ok || !plan.ValidName(m.Label) {
		return peer.Short()
	}
	shared := slices.ContainsFunc(s.Members, func(o Member) bool {
		return o.Label == m.Label && o.Peer != peer && (o.State != Gone || m.State == Gone)
	})
	if shared {
		return m.Label + " " + peer.Short()
	}
	return m.Label
}
