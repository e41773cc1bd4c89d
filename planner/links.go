package planner

import "pnode/planner/cost"

// DefaultLink is assumed where nobody measured: 1 Gb/s and a round trip of 1 ms.
var DefaultLink = cost.Link{BytesPerS: 125e6, RTTNanos: 1e6}

// links are the measured links by (from, to).
type links map[[2]PeerID]cost.Link

func newLinks(members []Member) links {
	l := links{}
	for _, m := range members {
		for _, p := range m.Profile.Links {
			if p.BytesPerS > 0 && p.Peer != m.Peer {
				l[[2]PeerID{m.Peer, p.Peer}] = cost.Link{BytesPerS: p.BytesPerS, RTTNanos: max(p.RTTNanos, 0) + 2*max(p.JitterNanos, 0)}
			}
		}
	}
	return l
}

// between is the link from one peer to another: as measured, else as measured the other
// way, else the default. The mean jitter of either way counts as latency.
func (l links) between(from, to PeerID) (link cost.Link, measured bool) {
	if from == to {
		return cost.Local, true
	}
	if link, ok := l[[2]PeerID{from, to}]; ok {
		return link, true
	}
	if link, ok := l[[2]PeerID{to, from}]; ok {
		return link, true
	}
	return DefaultLink, false
}

func (c *cluster) link(from, to int) cost.Link {
	link, _ := c.links.between(c.units[from].peer, c.units[to].peer)
	return link
}
