package departures

import (
	"testing"
	"time"
)

// TestAPlanLastsAsLongAsItWasBetweenDepartures, as the log remembers them: a leader that was just elected knows no others.
func TestAPlanLastsAsLongAsItWasBetweenDepartures(t *testing.T) {
	var h History
	now := time.Unix(1000, 0)
	passes := func(d time.Duration) {
		now = now.Add(d)
		h.Clock = h.Clock.After(1, now)
	}
	want := func(what string, want time.Duration) {
		t.Helper()
		if got := h.Lasts(time.Second); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	passes(0)
	want("nobody has gone", usualGap)
	passes(140 * time.Second)
	h = h.Noted(false)
	want("one is lost", usualGap)
	passes(20 * time.Second)
	h = h.Noted(true)
	passes(20 * time.Second)
	h = h.Noted(false).Noted(false)
	want("two more are gone, one of them with another one", 140*time.Second) // the middle one of three, and two hours
	passes(usualGap)
	passes(usualGap)
	want("nobody for long", 2*usualGap+time.Second)
	for range 3 * maxGaps {
		passes(5 * time.Second)
		h = h.Noted(false)
	}
	want("one in a loop", 5*time.Second)
}
