package silence

import (
	"math/rand/v2"
	"testing"
	"time"
)

// TestBound: what was learned from the times between signs of life, newest last.
func TestBound(t *testing.T) {
	const s = time.Second
	times := func(n int, gap time.Duration, then ...time.Duration) (all []time.Duration) {
		for range n {
			all = append(all, gap)
		}
		return append(all, then...)
	}
	for _, c := range []struct {
		name string
		gaps []time.Duration
		want time.Duration
	}{
		{"of a stranger", nil, Most},
		{"of one that was heard of little", times(enough-1, s), Most},
		{"every second", times(enough, s), Least},
		{"every five seconds, exactly", times(newest, 5*s), 10 * s},
		{"once six seconds", times(newest-1, s, 6*s), 12 * s},
		{"that was long ago", append([]time.Duration{6 * s}, times(newest, s)...), Least},
		{"one or four seconds", times(2, s, times(enough, 4*s)...), 11080 * time.Millisecond},
		{"an outage", times(enough, s, time.Hour), Most},
		{"a clock that went back", times(enough, s, -time.Hour), Least},
	} {
		t.Run(c.name, func(t *testing.T) {
			var learned Times
			for _, gap := range c.gaps {
				learned.Note(gap)
			}
			if got := learned.Bound(); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if got := learned.Suspicion(); got >= learned.Bound() || got < learned.Bound()/2 {
				t.Errorf("suspicion after %v of %v", got, learned.Bound())
			}
		})
	}
}

// TestFewAreMissed: heartbeats every second, late by 0.5 s in the mean and by 4 s and more at times, as on a starved
// machine. Of 100,000 a few are mistaken for a loss, and a lost one is missed before Most.
func TestFewAreMissed(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var learned Times
	wrong := 0
	for range 100_000 {
		gap := time.Second + time.Duration(rng.ExpFloat64()*float64(time.Second)/2)
		if gap > learned.Bound() {
			wrong++
		}
		learned.Note(gap)
	}
	if wrong > 20 {
		t.Errorf("%d of 100,000 are mistaken for a loss", wrong)
	}
	if got := learned.Bound(); got >= 10*time.Second {
		t.Errorf("a loss is noticed after %v", got)
	}
}

// TestUsual: the bound of those who lose little leaves one outage out, and no second one.
func TestUsual(t *testing.T) {
	const s = time.Second
	var learned Times
	if got := learned.Usual(5*s, 15*s); got != 15*s {
		t.Errorf("of a stranger: %v", got)
	}
	for range newest {
		learned.Note(s)
	}
	for i, want := range []time.Duration{5 * s, 5 * s, 12 * s} {
		if i > 0 {
			learned.Note(6 * s)
		}
		if got := learned.Usual(5*s, 15*s); got != want {
			t.Errorf("after %d outages %v, want %v", i, got, want)
		}
	}
}
