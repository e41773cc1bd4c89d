package measure

import (
	"maps"

	"pnode/planner/cost"
	"pnode/planner/plan"
)

// DefaultLink is assumed, at best, where nobody measured: 1 Gb/s and a round trip of 1 ms.
var DefaultLink = cost.Link{BytesPerS: 125e6, RTTNanos: 1e6}

// Links has what is known of the links between peers.
type Links struct {
	measured map[[2]plan.PeerID]cost.Link      // from one to another
	usual    map[plan.PeerID]cost.Link         // the median of the links from and to a peer
	over     map[[2]plan.PeerID]plan.Transport // what they went over, where that is known
}

// Probes has the links from a peer as it measured them itself.
type Probes struct {
	From  plan.PeerID
	Links []plan.LinkProfile
}

// NewLinks returns what is known by the probes of some peers, one Probes each.
func NewLinks(of []Probes) Links {
	measured, over := map[[2]plan.PeerID]cost.Link{}, map[[2]plan.PeerID]plan.Transport{}
	for _, probes := range of {
		for _, p := range probes.Links {
			if p.BytesPerS > 0 && p.Peer != probes.From {
				pair := [2]plan.PeerID{probes.From, p.Peer}
				measured[pair] = cost.Link{BytesPerS: p.BytesPerS, RTTNanos: max(p.RTTNanos, 0) + 2*max(p.JitterNanos, 0)}
				over[pair] = p.Transport
			}
		}
	}
	return linksOf(measured, over)
}

func linksOf(measured map[[2]plan.PeerID]cost.Link, over map[[2]plan.PeerID]plan.Transport) Links {
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
	return Links{measured, usual, over}
}

// Any reports whether any link was measured.
func (l Links) Any() bool { return len(l.measured) > 0 }

// Between returns the link from one peer to another: as measured, else as measured the other way,
// else as assumed: no better than what either end usually has, or it would be preferred to a measured
// one. The mean jitter of either way counts as latency.
func (l Links) Between(from, to plan.PeerID) (link cost.Link, measured bool) {
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
			link = Worse(link, usual)
		}
	}
	return link, false
}

// Worse returns the lower rate and the longer round trip of two links.
func Worse(a, b cost.Link) cost.Link {
	return cost.Link{BytesPerS: min(a.BytesPerS, b.BytesPerS), RTTNanos: max(a.RTTNanos, b.RTTNanos)}
}

// With returns the links as steps showed some of them. A link that was measured before is no faster than it was then,
// unless messages have found a better transport since.
func (l Links) With(seen []Link) Links {
	out, over := maps.Clone(l.measured), maps.Clone(l.over)
	for _, s := range seen {
		if s.Transport != "" { // it tells of the way back too, unless that is seen itself
			delete(over, [2]plan.PeerID{s.To, s.From})
		}
	}
	for _, s := range seen {
		pair := [2]plan.PeerID{s.From, s.To}
		link, _ := l.Between(s.From, s.To)
		switch {
		case s.BytesPerS <= 0:
		case s.Transport.Better(l.transport(s.From, s.To)):
			link.BytesPerS = max(min(link.BytesPerS, s.BytesPerS), min(s.BytesPerS, DefaultLink.BytesPerS))
		default:
			link.BytesPerS = min(link.BytesPerS, s.BytesPerS)
		}
		if s.RTTNanos > 0 {
			link.RTTNanos = min(s.RTTNanos, plan.MaxLinkNanos) + 2*min(max(s.JitterNanos, 0), plan.MaxLinkNanos)
		}
		out[pair] = link
		if s.Transport != "" {
			over[pair] = s.Transport
		}
	}
	return linksOf(out, over)
}

// transport returns over what Between's link from one peer to another goes, "" where that is not known.
func (l Links) transport(from, to plan.PeerID) plan.Transport {
	if over, ok := l.over[[2]plan.PeerID{from, to}]; ok {
		return over
	}
	return l.over[[2]plan.PeerID{to, from}]
}

// Relayed reports whether either direction between two peers goes through a relay.
func (l Links) Relayed(a, b plan.PeerID) bool {
	return l.over[[2]plan.PeerID{a, b}] == plan.Relay || l.over[[2]plan.PeerID{b, a}] == plan.Relay
}
