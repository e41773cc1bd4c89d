package planner

import (
	"maps"

	"pnode/planner/cost"
	"pnode/planner/plan"
)

// DefaultLink is assumed, at best, where nobody measured: 1 Gb/s and a round trip of 1 ms.
var DefaultLink = cost.Link{BytesPerS: 125e6, RTTNanos: 1e6}

// links has what is known of the links between peers.
type links struct {
	measured map[[2]plan.PeerID]cost.Link // from one to another
	usual    map[plan.PeerID]cost.Link    // the median of the links from and to a peer
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

// between returns the link from one peer to another: as measured, else as measured the other way,
// else as assumed: no better than what either end usually has, or it would be preferred to a measured
// one. The mean jitter of either way counts as latency.
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
	link = DefaultLink
	for _, p := range [...]plan.PeerID{from, to} {
		if usual, ok := l.usual[p]; ok {
			link = worse(link, usual)
		}
	}
	return link, false
}

// worse returns the lower rate and the longer round trip of two links.
func worse(a, b cost.Link) cost.Link {
	return cost.Link{BytesPerS: min(a.BytesPerS, b.BytesPerS), RTTNanos: max(a.RTTNanos, b.RTTNanos)}
}

// with returns the links as steps showed some of them.
func (l links) with(seen []MeasuredLink) links {
	out := maps.Clone(l.measured)
	for _, s := range seen {
		link, _ := l.between(s.From, s.To)
		if s.BytesPerS > 0 {
			link.BytesPerS = min(link.BytesPerS, s.BytesPerS)
		}
		if s.RTTNanos > 0 {
			link.RTTNanos = min(s.RTTNanos, plan.MaxLinkNanos) + 2*min(max(s.JitterNanos, 0), plan.MaxLinkNanos)
		}
		out[[2]plan.PeerID{s.From, s.To}] = link
	}
	return linksOf(out)
}
