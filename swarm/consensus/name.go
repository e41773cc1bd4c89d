package consensus

import (
	"slices"

	"pnode/planner/plan"
)

// NameOf returns what people call a peer: the name of its machine, followed by the end of the peer
// ID where another member has the same name. Without a name it is that end alone.
func (s State) NameOf(peer plan.PeerID) string {
	m, ok := s.Member(peer)
	if !ok || m.Label == "" {
		return peer.Short()
	}
	if slices.ContainsFunc(s.Members, func(o Member) bool { return o.Label == m.Label && o.Peer != peer }) {
		return m.Label + " " + peer.Short()
	}
	return m.Label
}
