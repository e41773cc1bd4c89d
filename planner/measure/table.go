package measure

import (
	"cmp"
	"slices"

	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Table has the links between devices by their numbers. It is for many devices that know few links each.
type Table struct {
	peer     []int       // by device the first one of its peer
	measured [][]lineTo  // by device, sorted
	assumed  []cost.Link // by device, between it and others of which nobody measured the link
}

type lineTo struct {
	to   int
	link cost.Link
}

// Table returns the links between devices of some peers, each device with its peer.
func (l Links) Table(peers []plan.PeerID) Table {
	t := Table{make([]int, len(peers)), make([][]lineTo, len(peers)), make([]cost.Link, len(peers))}
	of := map[plan.PeerID][]int{}
	for d, p := range peers {
		of[p] = append(of[p], d)
		t.peer[d], t.assumed[d] = of[p][0], DefaultLink
		if usual, ok := l.usual[p]; ok {
			t.assumed[d] = Worse(DefaultLink, usual)
		}
	}
	for pair, link := range l.measured {
		for _, from := range of[pair[0]] {
			for _, to := range of[pair[1]] {
				t.measured[from] = append(t.measured[from], lineTo{to, link})
			}
		}
	}
	for _, known := range t.measured {
		slices.SortFunc(known, func(a, b lineTo) int { return cmp.Compare(a.to, b.to) })
	}
	return t
}

// Between returns what Links.Between does for the peers of two devices.
func (t Table) Between(from, to int) cost.Link {
	if t.peer[from] == t.peer[to] {
		return cost.Local
	}
	if link, ok := t.known(from, to); ok {
		return link
	}
	if link, ok := t.known(to, from); ok {
		return link
	}
	return Worse(t.assumed[from], t.assumed[to])
}

func (t Table) known(from, to int) (cost.Link, bool) {
	known := t.measured[from]
	low, high := 0, len(known)
	for low < high {
		if mid := (low + high) / 2; known[mid].to < to {
			low = mid + 1
		} else {
			high = mid
		}
	}
	if low == len(known) || known[low].to != to {
		return cost.Link{}, false
	}
	return known[low].link, true
}
