package leader

import (
	"time"

	"pnode/node/gossip"
	"pnode/planner/plan"
)

// A pause waits for its save for leastSavePatience, or longer where saveSteps steps and the report of the save take longer; not that a step
// is believed to take more than a slowStep.
const (
	leastSavePatience = time.Minute
	saveSteps         = 4
	slowStep          = 5 * time.Minute
)

// pause describes the wait for the newest step to be saved.
type pause struct {
	// Paused: the plan's workers were asked to save their newest step and to wait, as this leader has known for
	// PausedFor. It waits for SavePatience. Saved: they have.
	Paused, Saved           bool
	PausedFor, SavePatience time.Duration
}

// pauseWatch follows the pause of the current plan. The zero value of all but beats has seen none.
type pauseWatch struct {
	beats *gossip.Tracker
	// seen is when this leader first saw the pause with a count in a generation.
	generation plan.Generation
	count      uint64
	seen       time.Time
}

// look takes in whether the plan is to pause.
func (w *pauseWatch) look(m moment) pause {
	state := m.state
	p := pause{Paused: state.Paused(), Saved: state.Ended(), SavePatience: savePatience(w.beats.StepTime(state.Plan), m.patience)}
	if !p.Paused {
		return p
	}
	if w.generation != state.Plan.Generation || w.count != state.PauseWanted {
		w.generation, w.count, w.seen = state.Plan.Generation, state.PauseWanted, m.now
	}
	p.PausedFor = m.now.Sub(w.seen)
	return p
}

// savePatience returns how long a pause waits for the step under way and its save, where a step takes so long, and the outcome of a
// proposal, the report of the save, may take proposal.
func savePatience(step, proposal time.Duration) time.Duration {
	return max(leastSavePatience, saveSteps*min(step, slowStep)+proposal)
}
