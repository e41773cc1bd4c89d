package emulate

import (
	"slices"
	"sync"
	"time"
)

// clock is a device's own time: when it is done with what it was given.
type clock struct {
	slack time.Duration

	mu   sync.Mutex // guards the rest
	free time.Time  // when the last call ends
	// idle are the spans before that in which nothing is done: what was enqueued then waits for
	// something else.
	idle []span
	// floor is when the program last got something from outside: nothing that is enqueued
	// later can have started before.
	floor time.Time
	busy  time.Duration // sum of all calls
}

// span is a time from its begin to its end.
type span struct{ begin, end time.Time }

// enqueue gives the end of a call of a duration that is enqueued now and may not begin before
// another time. A call that waits for that holds up none that is enqueued later and done before.
func (c *clock) enqueue(now, after time.Time, d time.Duration) (end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy += d
	if end, ok := c.fill(now, after, d); ok {
		return end
	}
	begin := c.ready(now, c.free)
	if after.After(begin) {
		c.idle = append(c.idle, span{begin, after})
		begin = after
	}
	c.free = begin.Add(d)
	return c.free
}

// fill has a call take place while others wait, if it is done before the first of them begins.
func (c *clock) fill(now, after time.Time, d time.Duration) (end time.Time, ok bool) {
	c.idle = slices.DeleteFunc(c.idle, func(s span) bool { return !c.ready(now, s.begin).Before(s.end) })
	for i, s := range c.idle {
		begin := c.ready(now, s.begin)
		if after.After(begin) {
			begin = after
		}
		if end = begin.Add(d); !end.After(s.end) {
			c.idle = slices.Replace(c.idle, i, i+1, span{s.begin, begin}, span{end, s.end})
			return end, true
		}
	}
	return end, false
}

// ready is when a device that is idle from a time on can begin with what is enqueued now. It goes on
// without a gap if it was idle for no longer than the slack.
func (c *clock) ready(now, idle time.Time) time.Time {
	if now.Sub(idle) > c.slack {
		idle = now
	}
	if idle.Before(c.floor) {
		return c.floor
	}
	return idle
}
