package node

import (
	"log/slog"
	"sync"
	"time"

	"pnode/planner/plan"
)

const (
	// A disk is slow once slowWrites writes of the log in a row have each taken slowWrite, or one is not done after slowestWrite.
	slowWrite    = 500 * time.Millisecond
	slowWrites   = 3
	slowestWrite = 5 * time.Second
	// slowAgain is the least time between two lines of a log that say so.
	slowAgain = 10 * time.Minute
)

// diskPace learns from writes of the consensus log how slow the disk is: no change of plan counts before a majority has written it. Its methods
// may be called concurrently.
type diskPace struct {
	dir string
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	open   int        // writes under way
	since  time.Time  // of the oldest of them
	slow   int        // writes in a row that were slow
	newest time.Duration
	said   time.Time
}

func (d *diskPace) begin(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open++; d.open == 1 {
		d.since = now
	}
}

func (d *diskPace) end(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open--
	d.newest = now.Sub(d.since)
	d.since = now // those still under way began later
	if d.newest < slowWrite {
		d.slow = 0
		return
	}
	if d.slow++; d.slow >= slowWrites && (d.said.IsZero() || now.Sub(d.said) >= slowAgain) {
		d.said = now
		d.log.Warn("the disk is slow: steps go on, but changes of plan, checkpoints and the end of this node wait for it; another folder is named with --dir",
			"dir", d.dir, "a_write_takes", plan.Duration(d.newest.Round(100*time.Millisecond)))
	}
}

// Slow returns how long a write of the log takes on a slow disk; 0 where the disk is quick enough.
func (d *diskPace) Slow(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open > 0 && now.Sub(d.since) >= max(slowestWrite, d.newest) {
		return now.Sub(d.since)
	}
	if d.slow >= slowWrites {
		return d.newest
	}
	return 0
}
