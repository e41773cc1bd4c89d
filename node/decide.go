package node

import (
	"fmt"
	"time"

	"pnode/planner"
)

// deadAfter is how long a member may be silent before the planner counts it as gone.
const deadAfter = 5 * time.Second

// stallGrace is how long the planner waits, at first, for a lost peer to show before it
// plans the same members again after a generation was given up.
const stallGrace = 3 * time.Second

// memberView is what the planner knows of a member when it decides.
type memberView struct {
	Peer    planner.PeerID
	Active  bool // in the roster and not leaving
	Leaving bool // draining
	// Reborn: started again after the plan was made, so not carrying it out.
	Reborn bool
	Silent time.Duration
	// Stalled is the generation that the member gave up, 0 for none.
	Stalled planner.Generation
}

// leadView is the planner's input to a decision, all of it plain values.
type leadView struct {
	Plan       planner.Plan
	Checkpoint planner.Step
	Members    []memberView
	MinNodes   int
	// Better says that a plan with the present members would be worth the change,
	// with the reason.
	Better    bool
	BetterWhy string
	// SavedFor is the step of the newest checkpoint when a save was asked for ahead
	// of a change of plan; Asked tells whether one was.
	Asked    bool
	SavedFor planner.Step
	// StalledFor is how long some member has been reporting the current generation
	// as given up, and why; Patience is how long that is waited for: longer each time a
	// generation ends without a new checkpoint.
	StalledFor time.Duration
	StallWhy   string
	Patience   time.Duration
	Ending     bool // the run is stopping or finished
}

// verdict is what the planner does next; at most one thing at a time.
type verdict struct {
	Gone planner.PeerID // mark this member gone
	Save bool           // ask for a checkpoint, a new plan follows it
	Plan bool           // make a new plan now
	Why  string
}

// decide is the planner's rule, cheapest loss first: mark the dead; plan at once when
// the plan cannot go on; otherwise have the state saved and plan from there.
func decide(v leadView) verdict {
	if v.Ending {
		return verdict{}
	}
	for _, m := range v.Members {
		if m.Silent > deadAfter {
			return verdict{Gone: m.Peer, Why: fmt.Sprintf("no sign of life for %v", m.Silent.Round(time.Second/10))}
		}
	}
	active, leaving := 0, map[planner.PeerID]bool{}
	present := map[planner.PeerID]bool{}
	for _, m := range v.Members {
		present[m.Peer] = (m.Active || m.Leaving) && !m.Reborn
		leaving[m.Peer] = m.Leaving
		if m.Active {
			active++
		}
	}
	if v.Plan.Generation == 0 {
		if active >= max(1, v.MinNodes) {
			return verdict{Plan: true, Why: "first plan"}
		}
		return verdict{}
	}
	if active == 0 {
		return verdict{} // the last node leaves: its checkpoint is the end of the run for now
	}
	for _, peer := range v.Plan.Peers() {
		if !present[peer] {
			return verdict{Plan: true, Why: fmt.Sprintf("%s is gone, or was started again", peer)}
		}
	}
	if v.StalledFor > v.Patience {
		return verdict{Plan: true, Why: "a member gave the generation up: " + v.StallWhy}
	}
	return v.change(leaving)
}

// change handles the wishes that can wait for a checkpoint.
func (v leadView) change(leaving map[planner.PeerID]bool) verdict {
	why := ""
	for _, peer := range v.Plan.Peers() {
		if leaving[peer] {
			why = fmt.Sprintf("%s is leaving", peer)
		}
	}
	if why == "" && v.Better {
		why = v.BetterWhy
	}
	switch {
	case why == "":
		return verdict{}
	case !v.Asked:
		return verdict{Save: true, Why: why}
	case v.Checkpoint > v.SavedFor:
		return verdict{Plan: true, Why: why}
	default:
		return verdict{} // the save is under way
	}
}
