// Package clock tells what time it is by the clocks of a run's members, so that one that is wrong ends no membership: neither
// that of the machine itself nor another's.
//
// [Clock] is the only noun. Members say in their heartbeats what time it is; the median counts, this machine's own clock
// included, so that whoever lies or errs moves nothing while more than half are right. Between two words of a member its
// clock is taken to run as this machine's monotonic one does: a clock that is set moves nobody else's.
//
// It has no goroutine. The node hears the members and tells people whose clock is off; swarm and consensus ask what time it is.
package clock

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"pnode/planner/plan"
)

const (
	// Off is how far from the others' a clock may be before that is told.
	Off = time.Minute
	// forgetAfter is how long a member's word counts.
	forgetAfter = 30 * time.Second
	// confirmTime is how long a node that comes back to its run waits for others to say what time it is.
	confirmTime = time.Minute
)

// Clock knows what time it is. Its methods may be called from any goroutine.
type Clock struct {
	own      func() time.Time // what this machine's clock says
	begun    time.Time
	comeBack bool

	mu   sync.Mutex // guards said
	said map[plan.PeerID]word
}

// word holds what a member's clock said when its word came.
type word struct {
	time  time.Time
	after time.Duration // since Clock.begun
}

// New returns a clock that has heard nobody. own is this machine's clock, nil for the system's. A node that comes back to
// its run has memberships end only when another member has said what time it is, or after a minute.
func New(own func() time.Time, comesBack bool) *Clock {
	if own == nil {
		own = time.Now
	}
	return &Clock{own: own, begun: time.Now(), comeBack: comesBack, said: map[plan.PeerID]word{}}
}

// Own returns what this machine's clock says.
func (c *Clock) Own() time.Time { return c.own().Round(0) }

// Note takes in what a member's clock says now.
func (c *Clock) Note(member plan.PeerID, says time.Time) {
	after := time.Since(c.begun)
	c.mu.Lock()
	defer c.mu.Unlock()
	for p, w := range c.said {
		if after-w.after > forgetAfter {
			delete(c.said, p)
		}
	}
	c.said[member] = word{says.Round(0), after}
}

// Reading holds the time by one clock. Its zero Member is this machine.
type Reading struct {
	Member plan.PeerID
	Time   time.Time
}

// read returns what the clocks say now, the earliest first.
func (c *Clock) read() []Reading {
	all := []Reading{{Time: c.Own()}}
	after := time.Since(c.begun)
	c.mu.Lock()
	for p, w := range c.said {
		if after-w.after <= forgetAfter {
			all = append(all, Reading{p, w.time.Add(after - w.after)})
		}
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b Reading) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.Member, b.Member)) })
	return all
}

// Now returns the time by the members' median clock. Where two are in the middle it is this machine's own, or the nearest
// to it of what lies between them.
func (c *Clock) Now() time.Time {
	own, all := c.Own(), c.read()
	earlier, later := all[(len(all)-1)/2].Time, all[len(all)/2].Time
	switch {
	case own.Before(earlier):
		return earlier
	case own.After(later):
		return later
	}
	return own
}

// Earliest is Now for the question whether a membership is over, in favour of the member: the earlier of two clocks in
// the middle counts. It is the zero time while a node that comes back may have the wrong time and has heard nobody.
func (c *Clock) Earliest() time.Time {
	all := c.read()
	if len(all) == 1 && c.comeBack && time.Since(c.begun) < confirmTime {
		return time.Time{}
	}
	return all[(len(all)-1)/2].Time
}

// Astray is a clock that is off.
type Astray struct {
	Member plan.PeerID // "" for this machine
	// By is how far it is ahead of the members' time.
	By time.Duration
	// Sure is set where more than half of the clocks agree on that. Else this machine's may be the one that is off.
	Sure bool
}

// Astray returns the clocks that are further than Off from the members' time.
func (c *Clock) Astray() (off []Astray) {
	now, all := c.Now(), c.read()
	agree := 0
	for _, r := range all {
		if r.Time.Sub(now).Abs() <= Off {
			agree++
		}
	}
	for _, r := range all {
		if by := r.Time.Sub(now); by.Abs() > Off {
			off = append(off, Astray{r.Member, by, 2*agree > len(all)})
		}
	}
	return off
}
