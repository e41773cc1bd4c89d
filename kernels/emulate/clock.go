package emulate

import (
	"sync"
	"time"
)

// clock is a device's own time: when it is done with what it was given.
type clock struct {
	slack time.Duration

	mu   sync.Mutex // guards the rest
	free time.Time  // when the last call ends
	// floor is when the program last got something from outside: nothing that is enqueued
	// later can have started before.
	floor time.Time
	busy  time.Duration // sum of all calls
}

// enqueue gives the end of a call of a duration that is enqueued now and may not begin before
// another time. The device goes on without a gap if it was idle for no longer than the slack.
func (c *clock) enqueue(now, after time.Time, d time.Duration) (end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.free) > c.slack {
		c.free = now
	}
	if c.free.Before(c.floor) {
		c.free = c.floor
	}
	if c.free.Before(after) {
		c.free = after
	}
	c.free = c.free.Add(d)
	c.busy += d
	return c.free
}

// waited raises the floor.
func (c *clock) waited(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if until.After(c.floor) {
		c.floor = until
	}
}

func (c *clock) busyTime() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.busy
}
