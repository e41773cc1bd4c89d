package leader

import (
	"pnode/node/gossip"
	"pnode/planner/plan"
)

// endings remember how the generations before the current one ended, as far as nobody was at fault.
type endings struct {
	// links are the accusations of the generations since the newest checkpoint that ended for lost links alone.
	links [][]accusation
	// quitter is the only member that gave the generations before the current one up, quits how many in a row.
	quitter plan.PeerID
	quits   int
}

// note takes in how a generation ended that another one replaces, and whether somebody was ruled to be at fault.
func (e *endings) note(stall gossip.Stall, ruled bool) {
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

// quitsOf returns how many generations in a row a member alone gave up right before the current one.
func (e *endings) quitsOf(p plan.PeerID) int {
	if p == "" || p != e.quitter {
		return 0
	}
	return e.quits
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
