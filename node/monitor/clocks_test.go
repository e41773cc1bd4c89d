package monitor

import (
	"testing"
	"time"

	"pnode/swarm/clock"
)

func TestClockText(t *testing.T) {
	const day = 24 * time.Hour
	for want, a := range map[string]clock.Astray{
		"this machine's clock is 365 days ahead of the others': set it right. The run goes by the others' until then": {By: 365 * day, Sure: true},
		"the clock of desk is 24 h behind the others': set it right. The run goes by the others' until then":          {Member: "d", By: -day, Sure: true},
		"the clock of desk is 3 min ahead of this machine's, and no more than half of the members say which one is right: set the wrong one. A membership ends when both say so": {
			Member: "d", By: 3 * time.Minute,
		},
	} {
		if got := clockText(a, "desk"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestEachClockIsToldOfOnce: after a while, and again when it was right meanwhile.
func TestEachClockIsToldOfOnce(t *testing.T) {
	w, now := clockWatch{}, time.Unix(1000, 0)
	off := []clock.Astray{{Member: "d", By: time.Hour, Sure: true}}
	look := func(off []clock.Astray) int {
		now = now.Add(time.Second)
		return len(w.news(off, now))
	}
	told := 0
	for range 60 {
		told += look(off)
		if told > 0 && now.Before(time.Unix(1000, 0).Add(astrayTime)) {
			t.Fatalf("told of after %v", now.Sub(time.Unix(1000, 0)))
		}
	}
	if told != 1 {
		t.Errorf("told of %d times", told)
	}
	look(nil)
	for range 10 {
		told += look(off)
	}
	if told != 2 {
		t.Errorf("told of %d times, once of each", told)
	}
}
