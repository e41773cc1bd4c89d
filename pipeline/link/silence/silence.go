// Package silence learns how long a peer's silence may last before it says that the peer is lost: from the times between its
// signs of life, as an accrual failure detector does (Hayashibara et al., "The phi accrual failure detector", SRDS 2004).
// A peer that speaks every second is missed soon, one on a starved machine or a poor line later.
//
// [Times] is the only noun. It takes times as arguments, computes in integers, and has no lock. The data plane has
// one for each peer, and so has the leader for each member. It imports nothing of this project.
package silence

import (
	"slices"
	"time"
)

const (
	// Least and Most bound what is learned. A machine that gets another address is silent for up to 6 s, and must not count as
	// lost then. Most holds for a peer of which little is known.
	Least = 8 * time.Second
	Most  = 15 * time.Second
	// LeastLink bounds what is learned of a link. Whoever gives a link up loses little by it, so that it may be early: the state
	// stays, and a plan with the peer follows once that is back. But a machine that moves should not pay for that each time.
	LeastLink = 6 * time.Second

	// newest is how many times are remembered, enough how many tell something.
	newest = 64
	enough = 8
	// A silence counts once it exceeds the mean time by deviations mean deviations: 6.4 standard deviations of a normal
	// distribution, which is a phi of 10. It exceeds the longest time remembered by a factor, too: the times of a
	// starved machine are no normal distribution.
	deviations = 8
	longest    = 2
)

// Times holds the newest times between signs of life of one peer, none of which counts for more than Most. The zero value
// knows none.
type Times struct {
	gaps  [newest]time.Duration
	count int // of all that were noted
}

// Note takes in the time between two signs of life.
func (t *Times) Note(gap time.Duration) {
	t.gaps[t.count%newest] = min(max(gap, 0), Most)
	t.count++
}

// Bound returns the silence after which the peer counts as lost, between Least and Most.
func (t *Times) Bound() time.Duration { return t.bound(0, Least, Most) }

// Usual is Bound between two other bounds, for those who lose little where they are wrong. It leaves the longest time out: one
// outage is no habit.
func (t *Times) Usual(least, most time.Duration) time.Duration { return t.bound(1, least, most) }

// bound returns the silence that the times allow but for so many of the longest ones. Where little is known it is the greatest.
func (t *Times) bound(without int, least, most time.Duration) time.Duration {
	if t.count < enough {
		return most
	}
	known := slices.Clone(t.gaps[:min(t.count, newest)])
	slices.Sort(known)
	known = known[:len(known)-without]
	var sum, spread time.Duration
	for _, gap := range known {
		sum += gap
	}
	mean := sum / time.Duration(len(known))
	for _, gap := range known {
		spread += max(gap-mean, mean-gap)
	}
	bound := max(mean+deviations*spread/time.Duration(len(known)), longest*known[len(known)-1])
	return min(max(bound, least), most)
}

// Suspicion returns the silence after which an answer to the peer's loss is to be prepared.
func (t *Times) Suspicion() time.Duration { return t.Bound() * 2 / 3 }
