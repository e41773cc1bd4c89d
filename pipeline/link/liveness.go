package link

import (
	"time"

	"pnode/pipeline/link/silence"
)

// looksPerBeat is how many times in the interval of heartbeats a peer's silence is looked at.
const looksPerBeat = 4

// liveness follows the signs of life of one peer: whatever comes on a connection, be it messages, acknowledgements or heartbeats. Of
// the last there is one in each interval, so that a peer always owes something. It belongs to the goroutine of remote.run.
type liveness struct {
	times    silence.Times // the longest silence in each interval
	interval time.Duration
	seen     time.Time // the newest sign of life; silence counts from here
	looked   time.Time // when it was looked at last
	noted    time.Time // when times took one in
	longest  time.Duration
}

// begin has silence count from now, as in a new session.
func (l *liveness) begin(interval time.Duration, now time.Time) {
	l.interval, l.seen, l.looked, l.noted, l.longest = interval, now, now, now, 0
}

// look returns how much of the time since the last look this process slept, or was starved: in that it heard nobody. Silence
// does not count it.
func (l *liveness) look(now time.Time) (slept time.Duration) {
	slept = max(0, now.Sub(l.looked)-l.interval)
	l.looked, l.seen = now, l.seen.Add(slept)
	return slept
}

// hear takes in the newest sign of life.
func (l *liveness) hear(at time.Time) {
	if !at.After(l.seen) {
		return
	}
	l.longest = max(l.longest, at.Sub(l.seen))
	l.seen = at
	if at.Sub(l.noted) >= l.interval {
		l.times.Note(l.longest)
		l.noted, l.longest = at, 0
	}
}

// excuse has the silence until now not count, for a reason that is known.
func (l *liveness) excuse(now time.Time) { l.seen = now }

// silent returns for how long nothing has come.
func (l *liveness) silent(now time.Time) time.Duration { return now.Sub(l.seen) }

// patience returns the silence after which the peer is lost.
func (l *liveness) patience(o Options) time.Duration {
	return l.times.Usual(o.LeastTimeout, o.PeerTimeout)
}
