package planner

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

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

// measureDistances fills near: the default everywhere, then what is local or measured.
func (c *cluster) measureDistances() {
	hop := DefaultLink.Hop(c.leastBytes(c.activationBytes))
	of := map[PeerID][]int{} // units of a peer
	c.near = make([][]schedule.Nanos, len(c.units))
	for u := range c.near {
		c.near[u] = slices.Repeat([]schedule.Nanos{2 * (hop.Transfer + hop.Latency)}, len(c.units))
		of[c.units[u].peer] = append(of[c.units[u].peer], u)
	}
	set := func(a, b PeerID) {
		for _, u := range of[a] {
			for _, v := range of[b] {
				c.near[u][v] = c.distance(u, v)
				c.near[v][u] = c.near[u][v]
			}
		}
	}
	for _, m := range c.in.Members {
		set(m.Peer, m.Peer)
		for _, l := range m.Profile.Links {
			set(m.Peer, l.Peer)
		}
	}
}

// distance is what a micro-batch's activation and gradient take between two units.
func (c *cluster) distance(u, v int) schedule.Nanos {
	bytes := c.leastBytes(c.activationBytes)
	forth, back := c.link(u, v).Hop(bytes), c.link(v, u).Hop(bytes)
	return forth.Transfer + forth.Latency + back.Transfer + back.Latency
}

func (c *cluster) link(from, to int) cost.Link {
	link, _ := c.links.between(c.units[from].peer, c.units[to].peer)
	return link
}
