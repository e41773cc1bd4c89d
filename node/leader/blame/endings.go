package blame

import (
	"pnode/node/gossip"
	"pnode/planner/plan"
)

// Endings remember how the generations before the current one ended, as far as nobody was at fault.
type Endings struct {
	// links are the accusations of the generations since the newest checkpoint that ended for lost links alone.
	links [][]accusation
	// quitter is the only member that gave the generations before the current one up, quits how many in a row.
	quitter plan.PeerID
	quits   int
}

// Note takes in how a generation ended that another one replaces, and whether somebody was ruled to be at fault.
func (e *Endings) Note(stall gossip.Stall, ruled bool) {
	if len(stall.Accusations) > 0 && !ruled {
		e.links = append(e.links, stall.Accusations)
	}
	switch by := quitter(stall.By, stall.Accusations); {
	case by == "" || ruled:
		e.quitter, e.quits = "", 0
	case e.quitter != by:
		e.quitter, e.quits = by, 1
	default:
		e.quits++
	}
}

// Progress forgets lost links: the generation has come to a new checkpoint, or somebody was ruled to be at fault.
func (e *Endings) Progress() { e.links = nil }

// Before has a trial know how the generations ended that came before the one in which these members gave up.
func (e *Endings) Before(t *Trial, by []plan.PeerID) {
	t.Links, t.Quitter, t.Quits = e.links, quitter(by, t.Accusations), 0
	if t.Quitter != "" && t.Quitter == e.quitter {
		t.Quits = e.quits
	}
}

// quitter returns the only member that has given a generation up, or the only one that had a reason, which others followed; empty
// where there is none.
func quitter(by []plan.PeerID, said []accusation) (one plan.PeerID) {
	if len(by) == 1 {
		return by[0]
	}
	for _, a := range said {
		if one != "" && a.By != one {
			return ""
		}
		one = a.By
	}
	return one
}
