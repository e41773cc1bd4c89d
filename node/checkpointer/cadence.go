package checkpointer

import (
	"sync"
	"time"

	"pnode/planner/plan"
)

const (
	// leastInterval is the least time between two checkpoints.
	leastInterval = 5 * time.Second
	// restShare is how many times as long as the last checkpoint took to be committed none is made.
	restShare = 9
	// forgetRestShare is the same where messages are forgotten.
	forgetRestShare = 3
	// lostAfter is when a checkpoint that was not committed counts as one that never will be.
	lostAfter = 10 * time.Minute
)

// Cadence says when the next checkpoint is due in one generation, where the run leaves that to pnode. A checkpoint
// is made in the background, so its cost is bandwidth, of disks and lines: at most one part in 1+restShare of the
// time goes into it. It is due earlier where messages can no longer be kept for a replay, for then more than its cost
// is at stake.
type Cadence struct {
	mu        sync.Mutex // guards the rest
	asked     plan.Step  // of the checkpoint under way; 0: none is
	since     time.Time  // when that was asked for
	committed time.Time  // when the last one was seen to be committed
	took      time.Duration
}

// NewCadence returns the cadence of a generation that begins now.
func NewCadence() *Cadence { return &Cadence{committed: time.Now()} }

// Due reports whether the state after a step is to be saved, given the step of the run's newest checkpoint and
// whether messages are about to be forgotten. A save is under way from then on.
func (c *Cadence) Due(step, newest plan.Step, forgets bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if c.asked != 0 {
		switch {
		case newest >= c.asked:
			c.took, c.committed, c.asked = now.Sub(c.since), now, 0
		case now.Sub(c.since) < lostAfter:
			return false
		}
	}
	rest := time.Duration(restShare)
	if forgets {
		rest = forgetRestShare
	}
	if now.Sub(c.committed) < max(leastInterval, rest*c.took) {
		return false
	}
	c.asked, c.since = step, now
	return true
}
