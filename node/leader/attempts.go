package leader

import (
	"time"

	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// attempts count the plans that did not come to another checkpoint. The zero value has seen none.
type attempts struct {
	plans int
	since plan.Step // of the checkpoint
}

// look takes in the newest checkpoint, and reports whether a generation has come to it by itself.
func (a *attempts) look(state consensus.State) (fresh bool) {
	if state.Checkpoint.Step == a.since {
		return false
	}
	a.since = state.Checkpoint.Step
	if s := state.Salvage; s != nil && s.Step == a.since {
		return false
	}
	a.plans = 0
	return true
}

// patience bounds the wait for a generation that was given up.
func (a *attempts) patience() time.Duration {
	return min(stallGrace<<min(a.plans, 5), time.Minute)
}
