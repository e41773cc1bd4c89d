package node

import (
	"context"
	"slices"
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// maxLinks bounds the links that one node measures: those to its likely neighbours.
	maxLinks = 8
	// arrivalProbes bounds measuring links before a node is counted in, laterProbes every
	// time that it gossips.
	arrivalProbes = 3 * time.Second
	laterProbes   = 15 * time.Second
)

// unmeasured lists the members whose link to self neither end has measured, beginning behind
// self so that not all nodes ask the same one first; no more than self may still measure.
func unmeasured(state consensus.State, self plan.PeerID, own []plan.LinkProfile) []plan.PeerID {
	var behind, before []plan.PeerID
	for _, m := range state.Members {
		toSelf := func(l plan.LinkProfile) bool { return l.Peer == self }
		toThem := func(l plan.LinkProfile) bool { return l.Peer == m.Peer }
		switch {
		case m.Peer == self, m.State == consensus.Gone:
		case slices.ContainsFunc(own, toThem), slices.ContainsFunc(m.Profile.Links, toSelf):
		case m.Peer > self:
			behind = append(behind, m.Peer)
		default:
			before = append(before, m.Peer)
		}
	}
	peers := append(behind, before...)
	return peers[:min(len(peers), max(0, maxLinks-len(own)))]
}

// probeLinks measures the links that are missing, one after the other, within limit. One that
// cannot be measured now is left for the next time.
func (n *Node) probeLinks(ctx context.Context, limit time.Duration) (measured bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for _, peer := range unmeasured(n.raft.State(), n.self, n.hardware.Profile().Links) {
		l, err := n.swarm.Probe(ctx, peer)
		if ctx.Err() != nil {
			return measured
		}
		if err != nil {
			n.log.Debug("link not measured", "peer", peer, "cause", err)
			continue
		}
		n.hardware.AddLink(l)
		n.log.Info("measured a link", "peer", peer, "bytes_per_s", l.BytesPerS, "rtt", time.Duration(l.RTTNanos), "jitter", time.Duration(l.JitterNanos))
		measured = true
	}
	return measured
}
