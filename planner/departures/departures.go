package departures

import (
	"fmt"
	"slices"
	"time"

	"pnode/planner/holders"
	"pnode/planner/plan"
)

const (
	// Most bounds the departures that are remembered.
	Most = 16
	// mostQuiet is how much of the time between two entries of one leader counts: it may have slept.
	mostQuiet = time.Hour
	// mostElection is how much of the time between entries of two terms counts. Clocks differ from machine to machine, and by
	// more than a minute is told.
	mostElection = time.Minute
	// sameTime is how far apart the departures are of members that go together.
	sameTime = time.Second
	// mostMillis bounds a clock, so that nanoseconds fit into 64 bits: 31 years.
	mostMillis = int64(1e12)
	// mostLost bounds the count of losses: far above sense.
	mostLost = 1_000_000
)

// Clock is for how long the log of a run has been written.
type Clock struct {
	Millis int64 `json:"ms"`
	// ReadMillis is when the newest entry was appended, in Unix time by the clock of its leader, which led in Term.
	ReadMillis int64     `json:"read_ms"`
	Term       plan.Term `json:"term"`
}

// After returns the clock after an entry that the leader of a term appended at a time. A zero time says nothing.
func (c Clock) After(term plan.Term, at time.Time) Clock {
	if at.IsZero() {
		return c
	}
	read, most := at.UnixMilli(), mostQuiet
	if term != c.Term {
		most = mostElection
	}
	if c != (Clock{}) {
		c.Millis = min(c.Millis+max(0, min(read-c.ReadMillis, most.Milliseconds())), mostMillis)
	}
	c.ReadMillis, c.Term = read, term
	return c
}

// Departure is one member that is gone, or was started again.
type Departure struct {
	// AtMillis is when the log said so, by Clock.Millis.
	AtMillis int64 `json:"at_ms"`
	// Left: it went by itself, and was not lost.
	Left bool `json:"left,omitempty"`
}

// History holds how often members went. It is a value: nothing reachable from it is ever changed.
type History struct {
	Clock Clock `json:"clock"`
	// Lost counts the members that were lost so far.
	Lost int `json:"lost,omitempty"`
	// Newest are at most Most departures, the newest first.
	Newest []Departure `json:"newest,omitempty"`
}

// Noted returns the history with a member more that goes now.
func (h History) Noted(left bool) History {
	if !left {
		h.Lost = min(h.Lost+1, mostLost)
	}
	h.Newest = append([]Departure{{h.Clock.Millis, left}}, h.Newest[:min(len(h.Newest), Most-1)]...)
	return h
}

// Validate returns an error for a history that no entries lead to.
func (h History) Validate() error {
	if h.Clock.Millis < 0 || h.Clock.Millis > mostMillis || h.Lost < 0 || h.Lost > mostLost || len(h.Newest) > Most {
		return fmt.Errorf("departures: clock %d ms, %d lost, %d remembered: want at most %d, %d and %d", h.Clock.Millis, h.Lost, len(h.Newest), mostMillis, mostLost, Most)
	}
	last := h.Clock.Millis
	for i, d := range h.Newest {
		if d.AtMillis < 0 || d.AtMillis > last {
			return fmt.Errorf("departures: number %d at %d ms: want 0 to %d", i, d.AtMillis, last)
		}
		last = d.AtMillis
	}
	return nil
}

// Rate returns how often members are lost, some time after the newest entry.
func (h History) Rate(since time.Duration) holders.Rate {
	now := h.Clock.Millis + max(0, since).Milliseconds()
	rate := holders.Rate{SeenNanos: now * 1e6, Losses: h.Lost}
	for _, d := range h.Newest {
		if !d.Left {
			rate.AgoNanos = append(rate.AgoNanos, (now-d.AtMillis)*1e6)
		}
	}
	return rate
}

// Gaps returns for how long nobody has gone, some time after the newest entry, and the times between those who went, the newest
// first. The first one is counted from the run's begin. Who went within sameTime of another one went together with it.
func (h History) Gaps(since time.Duration) (quiet time.Duration, gaps []time.Duration) {
	last := h.Clock.Millis + max(0, since).Milliseconds()
	all := h.Newest
	if len(all) < Most {
		all = append(slices.Clone(all), Departure{})
	}
	for i, d := range all {
		gap := time.Duration(last-d.AtMillis) * time.Millisecond
		switch {
		case i == 0:
			quiet = gap
		case gap < sameTime:
			continue
		default:
			gaps = append(gaps, gap)
		}
		last = d.AtMillis
	}
	return quiet, gaps
}

// Watch reads a run's clock between two entries, by the clock of this machine. The zero value has read nothing.
type Watch struct {
	read Clock
	at   time.Time
}

// Look takes a history in and returns how long ago its newest entry came here.
func (w *Watch) Look(h History, now time.Time) time.Duration {
	if w.at.IsZero() || w.read != h.Clock {
		w.read, w.at = h.Clock, now
	}
	return now.Sub(w.at)
}
