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

	mu     sync.Mutex // guards the rest
	said   map[plan.PeerID]word
	order  []word        // all of said, the earliest clock first
	oldest time.Duration // no word came earlier than that after begun
}

// word holds what a member's clock says. Until its next word that clock runs as this machine's monotonic one does, so the order of
// two members' clocks stays as it is.
type word struct {
	member plan.PeerID
	begun  time.Time     // what it said at Clock.begun, by its newest word
	came   time.Duration // after Clock.begun
}

// compare orders words by their clocks.
func (w word) compare(o word) int {
	return cmp.Or(w.begun.Compare(o.begun), cmp.Compare(w.member, o.member))
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
	c.forget(after)
	if old, ok := c.said[member]; ok {
		i, _ := slices.BinarySearchFunc(c.order, old, word.compare)
		c.order = slices.Delete(c.order, i, i+1)
	}
	w := word{member, says.Round(0).Add(-after), after}
	i, _ := slices.BinarySearchFunc(c.order, w, word.compare)
	c.order = slices.Insert(c.order, i, w)
	c.said[member] = w
}

// forget drops the words that are too old to count. Callers hold mu.
func (c *Clock) forget(after time.Duration) {
	if after-c.oldest <= forgetAfter {
		return
	}
	c.oldest = after
	c.order = slices.DeleteFunc(c.order, func(w word) bool {
		if after-w.came > forgetAfter {
			delete(c.said, w.member)
			return true
		}
		c.oldest = min(c.oldest, w.came)
		return false
	})
}

// Reading holds the time by one clock. Its zero Member is this machine.
type Reading struct {
	Member plan.PeerID
	Time   time.Time
}

// clocks holds what all clocks say at one moment. Of words it borrows the order, so that its caller holds mu.
type clocks struct {
	own   time.Time
	at    int // the place of own among the others
	after time.Duration
	words []word
}

// clocks returns what the clocks say now. Callers hold mu.
func (c *Clock) clocks() clocks {
	all := clocks{own: c.Own(), after: time.Since(c.begun)}
	c.forget(all.after)
	all.words = c.order
	all.at, _ = slices.BinarySearchFunc(c.order, all.own.Add(-all.after), func(w word, own time.Time) int { return w.begun.Compare(own) })
	return all
}

// reading returns one of them, the earliest first.
func (a clocks) reading(i int) Reading {
	switch {
	case i == a.at:
		return Reading{Time: a.own}
	case i > a.at:
		i--
	}
	return Reading{a.words[i].member, a.words[i].begun.Add(a.after)}
}

// middle returns the times of the two in the middle, which is twice the same where one is.
func (a clocks) middle() (earlier, later time.Time) {
	return a.reading(len(a.words) / 2).Time, a.reading((len(a.words) + 1) / 2).Time
}

// now returns the time by all of them.
func (a clocks) now() time.Time {
	earlier, later := a.middle()
	switch {
	case a.own.Before(earlier):
		return earlier
	case a.own.After(later):
		return later
	}
	return a.own
}

// Now returns the time by the members' median clock. Where two are in the middle it is this machine's own, or the nearest
// to it of what lies between them.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.clocks().now()
}

// Earliest is Now for the question whether a membership is over, in favour of the member: the earlier of two clocks in
// the middle counts. It is the zero time while a node that comes back may have the wrong time and has heard nobody.
func (c *Clock) Earliest() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.clocks()
	if len(all.words) == 0 && c.comeBack && all.after < confirmTime {
		return time.Time{}
	}
	earlier, _ := all.middle()
	return earlier
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
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.clocks()
	n, now := len(all.words)+1, all.now()
	for i := range n {
		if r := all.reading(i); r.Time.Sub(now).Abs() > Off {
			off = append(off, Astray{Member: r.Member, By: r.Time.Sub(now)})
		}
	}
	for i := range off {
		off[i].Sure = 2*(n-len(off)) > n
	}
	return off
}
