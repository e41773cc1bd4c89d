package departures

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pnode/planner/plan"
)

// TestClock: what counts of the time between two entries.
func TestClock(t *testing.T) {
	const day = 24 * time.Hour
	begin, clock := time.Unix(1_700_000_000, 0), Clock{}
	for _, c := range []struct {
		name string
		term plan.Term
		read time.Duration // after begin, by the leader's clock
		want time.Duration
	}{
		{"the first entry", 1, 0, 0},
		{"the same leader", 1, 90 * time.Second, 90 * time.Second},
		{"its clock is set back", 1, -time.Hour, 90 * time.Second},
		{"and goes on from there", 1, -time.Hour + time.Second, 91 * time.Second},
		{"an election", 2, -time.Hour + 4*time.Second, 94 * time.Second},
		{"a leader whose clock is a year ahead", 3, 365 * day, 154 * time.Second},
		{"it goes on", 3, 365*day + time.Minute, 214 * time.Second},
		{"a leader whose clock is right", 4, 20 * time.Minute, 214 * time.Second},
		{"it sleeps for a day", 4, day, time.Hour + 214*time.Second},
	} {
		clock = clock.After(c.term, begin.Add(c.read))
		if got := time.Duration(clock.Millis) * time.Millisecond; got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := clock.After(9, time.Time{}); got != clock {
		t.Errorf("an entry without a time: %+v, want %+v", got, clock)
	}
}

// TestNoTimeIsTooFar: whatever leaders say, time does not go back and the history stays within its bounds.
func TestNoTimeIsTooFar(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	ends := []time.Time{{}, time.Unix(0, 0), time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0), time.Unix(1<<40, 0), time.Unix(-1<<40, 0)}
	h := History{Clock: Clock{Millis: mostMillis - 5*mostQuiet.Milliseconds()}, Lost: mostLost - 5}
	for i := range 1000 {
		before := h
		h.Clock = h.Clock.After(plan.Term(r.IntN(2)), ends[r.IntN(len(ends))])
		h = h.Noted(i%3 == 0)
		if err := h.Validate(); err != nil || h.Clock.Millis < before.Clock.Millis {
			t.Fatalf("%+v after %+v: %v", h, before, err)
		}
		for _, ago := range h.Rate(time.Hour).AgoNanos {
			if ago < int64(time.Hour) {
				t.Fatalf("a loss %d ns ago an hour later", ago)
			}
		}
	}
	if h.Clock.Millis != mostMillis || h.Lost != mostLost || len(h.Newest) != Most {
		t.Errorf("%+v: the bounds were not reached", h)
	}
}

// TestRate: who left by itself was not lost.
func TestRate(t *testing.T) {
	begin, h := time.Unix(1000, 0), History{}
	for i, left := range []bool{false, true, false} {
		h.Clock = h.Clock.After(1, begin.Add(time.Duration(i)*time.Minute))
		kept := slices.Clone(h.Newest)
		before := h
		h = h.Noted(left)
		if !slices.Equal(before.Newest, kept) {
			t.Error("the history before was changed")
		}
	}
	got := h.Rate(time.Second)
	want := []int64{int64(time.Second), int64(2*time.Minute + time.Second)}
	if got.SeenNanos != want[1] || got.Losses != 2 || !slices.Equal(got.AgoNanos, want) {
		t.Errorf("%+v, want losses %v ago", got, want)
	}
	if got := (History{}).Rate(-time.Hour); got.SeenNanos != 0 || got.Losses != 0 || len(got.AgoNanos) != 0 {
		t.Errorf("without a loss: %+v", got)
	}
}

// TestGaps: members that go at once are counted once, and what is forgotten is no gap.
func TestGaps(t *testing.T) {
	at := func(seconds ...int64) (all []Departure) {
		for i, s := range seconds {
			all = append(all, Departure{AtMillis: s * 1000, Left: i%2 == 0})
		}
		return all
	}
	full := make([]Departure, Most)
	for i := range full {
		full[i].AtMillis = int64(Most-i) * 5000
	}
	for _, c := range []struct {
		name  string
		h     History
		quiet time.Duration
		want  []time.Duration
	}{
		{"nobody went", History{Clock: Clock{Millis: 90_000}}, 91 * time.Second, nil},
		{"one did", History{Clock: Clock{Millis: 90_000}, Newest: at(60)}, 31 * time.Second, []time.Duration{time.Minute}},
		{"two at once", History{Clock: Clock{Millis: 90_000}, Newest: at(60, 60, 20)}, 31 * time.Second, []time.Duration{40 * time.Second, 20 * time.Second}},
		{"as many as are remembered", History{Clock: Clock{Millis: Most * 5000}, Newest: full}, time.Second, slices.Repeat([]time.Duration{5 * time.Second}, Most-1)},
	} {
		quiet, got := c.h.Gaps(time.Second)
		if quiet != c.quiet || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v and %v, want %v and %v", c.name, quiet, got, c.quiet, c.want)
		}
	}
}

// TestValidate: what another program wrote is not believed.
func TestValidate(t *testing.T) {
	for name, h := range map[string]History{
		"a clock below zero":       {Clock: Clock{Millis: -1}},
		"a clock beyond its bound": {Clock: Clock{Millis: mostMillis + 1}},
		"fewer than none":          {Lost: -1},
		"too many":                 {Lost: mostLost + 1},
		"too many times":           {Newest: make([]Departure, Most+1)},
		"of the future":            {Newest: []Departure{{AtMillis: 1}}},
		"before the run":           {Newest: []Departure{{AtMillis: -1}}},
		"the oldest first":         {Clock: Clock{Millis: 9}, Newest: []Departure{{AtMillis: 1}, {AtMillis: 2}}},
	} {
		if h.Validate() == nil {
			t.Errorf("%s is taken: %+v", name, h)
		}
	}
}

// TestWatch: the time between two entries passes by this machine's clock.
func TestWatch(t *testing.T) {
	var w Watch
	now, h := time.Unix(5000, 0), History{Clock: Clock{Millis: 7}}
	for _, c := range []struct{ after, want time.Duration }{{0, 0}, {time.Second, time.Second}, {time.Minute, time.Minute + time.Second}} {
		now = now.Add(c.after)
		if got := w.Look(h, now); got != c.want {
			t.Errorf("%v, want %v", got, c.want)
		}
	}
	h.Clock.Millis++
	if got := w.Look(h, now); got != 0 {
		t.Errorf("%v after an entry, want 0", got)
	}
}
