package clock

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/planner/plan"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

// wall is a machine's clock that can be set.
type wall struct{ by time.Duration }

func (w *wall) now() time.Time { return time.Now().Add(w.by) }

// TestMedianCounts: how far the members' time is from the right one, for this machine's own clock and the others'.
func TestMedianCounts(t *testing.T) {
	for name, c := range map[string]struct {
		own           time.Duration
		others        []time.Duration
		now, earliest time.Duration
		astray        []Astray
	}{
		"nobody else":            {own: year, now: year, earliest: year},
		"all are right":          {others: []time.Duration{time.Second, -time.Second}},
		"a year ahead":           {own: year, others: []time.Duration{0, 0}, astray: []Astray{{"", year, true}}},
		"a day back":             {own: -day, others: []time.Duration{0, 0, 0}, astray: []Astray{{"", -day, true}}},
		"another is off":         {others: []time.Duration{0, year, 0}, astray: []Astray{{"b", year, true}}},
		"two of five":            {others: []time.Duration{year, year, 0, 0}, astray: []Astray{{"a", year, true}, {"b", year, true}}},
		"one of two, ahead":      {own: year, others: []time.Duration{0}, now: year, astray: []Astray{{"a", -year, false}}},
		"one of two, behind":     {own: -day, others: []time.Duration{0}, now: -day, earliest: -day, astray: []Astray{{"a", day, false}}},
		"the other one of two":   {others: []time.Duration{year}, astray: []Astray{{"a", year, false}}},
		"two and two":            {own: year, others: []time.Duration{0, 0, year}, now: year, astray: []Astray{{"a", -year, false}, {"b", -year, false}}},
		"who is near is not off": {own: Off, others: []time.Duration{0, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := New((&wall{c.own}).now, false)
				for i, by := range c.others {
					clock.Note(plan.PeerID(rune('a'+i)), time.Now().Add(by))
				}
				time.Sleep(10 * time.Second)
				if got := time.Until(clock.Now()).Round(time.Minute); got != c.now {
					t.Errorf("now is off by %v, want %v", got, c.now)
				}
				if got := time.Until(clock.Earliest()).Round(time.Minute); got != c.earliest {
					t.Errorf("the earliest is off by %v, want %v", got, c.earliest)
				}
				got := clock.Astray()
				if len(got) != len(c.astray) {
					t.Fatalf("astray are %v, want %v", got, c.astray)
				}
				for i, a := range got {
					if a != c.astray[i] {
						t.Errorf("astray is %v, want %v", a, c.astray[i])
					}
				}
			})
		})
	}
}

// TestAJumpMovesNobodyElse: the others' words from before the clock was set count as they were.
func TestAJumpMovesNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own := &wall{}
		clock := New(own.now, false)
		clock.Note("a", time.Now())
		clock.Note("b", time.Now())
		own.by = year
		time.Sleep(forgetAfter)
		if got := time.Until(clock.Now()); got != 0 {
			t.Errorf("after a jump now is off by %v", got)
		}
		time.Sleep(time.Nanosecond)
		if got := time.Until(clock.Now()); got != year {
			t.Errorf("when the others are silent now is off by %v", got)
		}
	})
}

// TestWhoComesBackAsksFirst: a node that was started with a wrong clock has nobody's membership end before it has asked.
func TestWhoComesBackAsksFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := New((&wall{year}).now, true)
		if got := clock.Earliest(); !got.IsZero() {
			t.Errorf("at the start memberships end by %v", got)
		}
		time.Sleep(confirmTime)
		if got := time.Until(clock.Earliest()); got != year {
			t.Errorf("alone the clock is off by %v", got)
		}
		clock.Note("a", time.Now())
		clock.Note("b", time.Now())
		if got := time.Until(clock.Earliest()); got != 0 {
			t.Errorf("with two others it is off by %v", got)
		}
	})
}

// TestTheMiddleIsThatOfAllClocks: whatever members say, and when, the time is the one that sorting all clocks gives.
func TestTheMiddleIsThatOfAllClocks(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 0))
			own, begun := &wall{}, time.Now()
			clock := New(own.now, false)
			type heard struct{ off, at time.Duration }
			said := map[plan.PeerID]heard{}
			for range 200 {
				switch random.IntN(5) {
				case 0:
					own.by = time.Duration(random.IntN(7)-3) * time.Second
				case 1:
					time.Sleep(time.Duration(random.IntN(12)) * time.Second)
				default:
					member, off := plan.PeerID(rune('a'+random.IntN(8))), time.Duration(random.IntN(7)-3)*time.Second
					clock.Note(member, time.Now().Add(off))
					said[member] = heard{off, time.Since(begun)}
				}
				all := []time.Duration{own.by}
				for _, h := range said {
					if time.Since(begun)-h.at <= forgetAfter {
						all = append(all, h.off)
					}
				}
				slices.Sort(all)
				earlier, later := all[(len(all)-1)/2], all[len(all)/2]
				if got := time.Until(clock.Earliest()); got != earlier {
					t.Fatalf("seed %d: the earliest is off by %v, want %v of %v", seed, got, earlier, all)
				}
				if got, want := time.Until(clock.Now()), min(max(own.by, earlier), later); got != want {
					t.Fatalf("seed %d: now is off by %v, want %v of %v", seed, got, want, all)
				}
			}
		})
	}
}

// BenchmarkEarliest asks as often as messages come, BenchmarkNote hears as often as heartbeats do.
func BenchmarkEarliest(b *testing.B) {
	forEachSize(b, func(b *testing.B, clock *Clock, _ int) {
		for b.Loop() {
			clock.Earliest()
		}
	})
}

func BenchmarkNote(b *testing.B) {
	forEachSize(b, func(b *testing.B, clock *Clock, members int) {
		for i := 0; b.Loop(); i++ {
			clock.Note(member(i%members), time.Now())
		}
	})
}

func forEachSize(b *testing.B, f func(b *testing.B, clock *Clock, members int)) {
	for _, members := range []int{10, 50, 500} {
		b.Run(fmt.Sprint(members), func(b *testing.B) {
			clock := New(nil, false)
			for i := range members {
				clock.Note(member(i), time.Now())
			}
			f(b, clock, members)
		})
	}
}

func member(i int) plan.PeerID { return plan.PeerID(fmt.Sprint("member-", i)) }
