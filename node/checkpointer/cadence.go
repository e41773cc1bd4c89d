package checkpointer

import (
	"sync"
	"time"

	"pnode/planner/departures"
	"pnode/planner/holders"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// forgetRestShare is how many times as long as the last checkpoint took to be committed none is made where messages
	// are forgotten.
	forgetRestShare = 3
	// lostAfter is when a checkpoint that was not committed counts as one that never will be.
	lostAfter = 10 * time.Minute
)

// Cadence says when the next checkpoint is due in one generation, where the run leaves that to pnode. A checkpoint
// is made in the background, so its cost is bandwidth, of disks and lines: package holders says what part of the time it may
// take, from half where members are lost often to a hundredth where they are not. How often they are is in the log: the
// process that coordinates the steps may just have been started itself. A checkpoint is due earlier where messages can no longer
// be kept for a replay, for then more than its cost is at stake.
type Cadence struct {
	mu        sync.Mutex // guards the rest
	clock     departures.Watch
	asked     plan.Step // of the checkpoint under way; 0: none is
	since     time.Time //  when that was asked for
	committed time.Time //  when the last one was seen to be committed
	took      time.Duration
}

// NewCadence returns the cadence of a generation that begins now.
func NewCadence() *Cadence { return &Cadence{committed: time.Now()} }

// Due reports whether the state after a step is to be saved, given the run's state and whether messages are about to be
// forgotten. A save is under way from then on.
func (c *Cadence) Due(step plan.Step, state consensus.State, forgets bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	rate := state.Departures.Rate(c.clock.Look(state.Departures, now))
	c.note(state.Checkpoint.Step, now)
	if c.asked != 0 && now.Sub(c.since) < lostAfter {
		return false
	}
	rest := time.Duration(holders.Every(int64(c.took), rate.Between()))
	if forgets {
		rest = min(rest, max(time.Duration(holders.LeastNanos), forgetRestShare*c.took))
	}
	if now.Sub(c.committed) < rest {
		return false
	}
	c.asked, c.since = step, now
	return true
}

// Committed takes in that the checkpoint of a step is committed now. Due would notice it at the end of a step, which may be long.
func (c *Cadence) Committed(step plan.Step) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(step, time.Now())
}

// note takes in the newest checkpoint.
func (c *Cadence) note(newest plan.Step, now time.Time) {
	if c.asked != 0 && newest >= c.asked {
		c.took, c.committed, c.asked = now.Sub(c.since), now, 0
	}
}
