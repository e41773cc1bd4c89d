package planner

import (
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// DefaultLink is assumed, at best, where nobody measured: 1 Gb/s and a round trip of 1 ms.
var DefaultLink = cost.Link{BytesPerS: 125e6, RTTNanos: 1e6}

// links is what is known of the links between peers.
type links struct {
	measured map[[2]plan.PeerID]cost.Link // from one to another
	usual    map[plan.PeerID]cost.Link    // the median of those that were measured from or to a peer
}

func newLinks(members []Member) links {
	measured := map[[2]plan.PeerID]cost.Link{}
	for _, m := range members {
		for _, p := range m.Profile.Links {
			if p.BytesPerS > 0 && p.Peer != m.Peer {
				measured[[2]plan.PeerID{m.Peer, p.Peer}] = cost.Link{BytesPerS: p.BytesPerS, RTTNanos: max(p.RTTNanos, 0) + 2*max(p.JitterNanos, 0)}
			}
		}
	}
	return linksOf(measured)
}

func linksOf(measured map[[2]plan.PeerID]cost.Link) links {
	rates, trips := map[plan.PeerID][]int64{}, map[plan.PeerID][]int64{}
	for pair, link := range measured {
		for _, p := range pair {
			rates[p], trips[p] = append(rates[p], link.BytesPerS), append(trips[p], link.RTTNanos)
		}
	}
	usual := map[plan.PeerID]cost.Link{}
	for p := range rates {
		usual[p] = cost.Link{BytesPerS: middle(rates[p]), RTTNanos: middle(trips[p])}
	}
	return links{measured, usual}
}

// between is the link from one peer to another: as measured, else as measured the other
// way, else as assumed. The mean jitter of either way counts as latency.
func (l links) between(from, to plan.PeerID) (link cost.Link, measured bool) {
	if from == to {
		return cost.Local, true
	}
	if link, ok := l.measured[[2]plan.PeerID{from, to}]; ok {
		return link, true
	}
	if link, ok := l.measured[[2]plan.PeerID{to, from}]; ok {
		return link, true
	}
	return l.assumed(from, to), false
}

// assumed is no better than what either end usually has: else what nobody measured would be
// preferred to what somebody did.
func (l links) assumed(from, to plan.PeerID) cost.Link {
	link := DefaultLink
	for _, p := range [...]plan.PeerID{from, to} {
		if usual, ok := l.usual[p]; ok {
			link = worse(link, usual)
		}
	}
	return link
}

// worse is the lower rate and the longer round trip of two.
func worse(a, b cost.Link) cost.Link {
	return cost.Link{BytesPerS: min(a.BytesPerS, b.BytesPerS), RTTNanos: max(a.RTTNanos, b.RTTNanos)}
}

// knowUnits fills what the order of units depends on.
func (c *cluster) knowUnits() {
	o := &c.orders
	o.Near, o.Measured = make([][]schedule.Nanos, len(c.units)), len(c.links.measured) > 0
	for u := range c.units {
		o.Whole, o.FreeBytes = append(o.Whole, c.units[u].Whole()), append(o.FreeBytes, c.units[u].FreeBytes)
		o.Near[u] = make([]schedule.Nanos, len(c.units))
		for v := range o.Near[:u+1] {
			o.Near[u][v] = c.distance(u, v)
			o.Near[v][u] = o.Near[u][v]
		}
	}
}

// distance is what a micro-batch's activation and gradient take between two units.
func (c *cluster) distance(u, v int) schedule.Nanos {
	bytes := c.leastBytes(c.books().Activation())
	forth, back := c.link(u, v).Hop(bytes), c.link(v, u).Hop(bytes)
	return forth.Transfer + forth.Latency + back.Transfer + back.Latency
}

func (c *cluster) link(from, to int) cost.Link {
	link, _ := c.links.between(c.units[from].peer, c.units[to].peer)
	return link
}
