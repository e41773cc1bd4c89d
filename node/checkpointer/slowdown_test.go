package checkpointer

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// load returns how long a step takes that begins at a time, in seconds, without a checkpoint.
type load func(r *rand.Rand, now float64) float64

// measured returns what a checkpoint was seen to cost after 40 of them, 5 s from begin to begin or a little more. Each takes work seconds where steps take
// one, and longer where they are slow, and makes steps beside it longer by a part.
func measured(steps load, work, cost float64, seed uint64) time.Duration {
	var s slowdown
	r := rand.New(rand.NewPCG(seed, 1))
	now, begun, left := 0.0, 0.0, 0.0
	for saves := 0; saves < 40; {
		usual := steps(r, now)
		took, saving := usual, left > 0
		if saving {
			took *= 1 + cost
			left -= took / usual
		}
		now += took
		s.step(time.Duration(took*1e9), saving)
		if saving && left <= 0 {
			s.saved()
			saves++
		}
		if left <= 0 && now-begun >= 5 {
			begun, left = now, work
		}
	}
	return s.lost()
}

// bursts returns a load that makes steps so many times as long, for some seconds in the mean, with so many between.
func bursts(factor, on, off float64) load {
	until, busy := 0.0, false
	return func(r *rand.Rand, now float64) float64 {
		for ; now >= until; busy = !busy {
			mean := off
			if busy {
				mean = on
			}
			until += r.ExpFloat64() * mean
		}
		step := 0.8 + 0.1*r.ExpFloat64()
		if !busy { // busy is of the span that comes next
			step *= factor
		}
		return step
	}
}

// TestOnlyWhatStepsLoseCounts: steps that are slow for another reason are no cost of checkpoints, whether always or at times, though checkpoints take longer
// then. What they do cost is seen.
func TestOnlyWhatStepsLoseCounts(t *testing.T) {
	steady := func(r *rand.Rand, _ float64) float64 { return 0.99 + 0.02*r.Float64() }
	uneven := func(r *rand.Rand, _ float64) float64 { return 0.5 + 0.5*r.ExpFloat64() }
	slower := func(r *rand.Rand, now float64) float64 { return (1 + now/100) * steady(r, now) }
	const ms = time.Millisecond
	for _, c := range []struct {
		name        string
		steps       func() load
		work, cost  float64
		least, most time.Duration // of the middle one of 50 runs
	}{
		{"steady", func() load { return steady }, 1.5, 0, 0, 0},
		{"steady, a twentieth", func() load { return steady }, 0.5, 0.05, 40 * ms, 50 * ms},
		{"steady, a half", func() load { return steady }, 0.5, 0.5, 450 * ms, 500 * ms},
		{"steady, a half of two steps", func() load { return steady }, 2.5, 0.5, 900 * ms, 1000 * ms},
		{"ever slower", func() load { return slower }, 1.5, 0, 0, 0},
		{"uneven", func() load { return uneven }, 1.5, 0, 0, 0},
		{"bursts", func() load { return bursts(3, 6, 6) }, 1.5, 0, 0, 0},
		{"short bursts", func() load { return bursts(5, 3, 10) }, 3, 0, 0, 0},
		{"long bursts", func() load { return bursts(5, 20, 20) }, 3, 0, 0, 0},
		{"violent bursts", func() load { return bursts(10, 3, 3) }, 1.5, 0, 0, 0},
		{"long bursts, a half", func() load { return bursts(5, 20, 20) }, 0.5, 0.5, 200 * ms, 500 * ms},
		{"short bursts, a half", func() load { return bursts(5, 3, 10) }, 0.5, 0.5, 200 * ms, 500 * ms},
	} {
		var got []time.Duration
		for seed := range uint64(50) {
			got = append(got, measured(c.steps(), c.work, c.cost, seed))
		}
		slices.Sort(got)
		if middle, high := got[25], got[45]; middle < c.least || middle > c.most || high > c.most+100*ms {
			t.Errorf("%s: %v lost in the middle and %v in the highest tenth, want %v to %v", c.name, middle, high, c.least, c.most)
		}
	}
}

// TestThinEvidenceSaysLittle: a checkpoint is compared with steps on both sides, and one or two that were slow may be chance.
func TestThinEvidenceSaysLittle(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name          string
		costs         []time.Duration // a checkpoint each
		before, after int             // steps of 500 ms
		want          time.Duration
	}{
		{"nothing was seen", nil, 3, 3, 0},
		{"one counts for a fifth", []time.Duration{400 * ms}, 3, 3, 80 * ms},
		{"four for as many", slices.Repeat([]time.Duration{400 * ms}, 4), 3, 3, 320 * ms},
		{"four, one of them in no time", []time.Duration{400 * ms, 0, 500 * ms, 400 * ms}, 3, 3, 0},
		{"five that agree", []time.Duration{400 * ms, 300 * ms, 500 * ms, 400 * ms, 600 * ms}, 3, 3, 300 * ms},
		{"five, one of them in no time", []time.Duration{400 * ms, 0, 500 * ms, 400 * ms, 600 * ms}, 3, 3, 0},
		{"sixteen, some of them long", append(slices.Repeat([]time.Duration{0}, 5), slices.Repeat([]time.Duration{9000 * ms}, 11)...), 3, 3, 0},
		{"the newest sixteen", append(slices.Repeat([]time.Duration{9000 * ms}, 9), slices.Repeat([]time.Duration{100 * ms}, 16)...), 3, 3, 100 * ms},
		{"one step around each", slices.Repeat([]time.Duration{400 * ms}, 16), 1, 0, 0},
		{"none around any", slices.Repeat([]time.Duration{400 * ms}, 16), 0, 0, 0},
	} {
		var s slowdown
		for _, cost := range c.costs {
			for range c.before {
				s.step(500*ms, false)
			}
			s.step(500*ms+cost, true)
			s.saved()
			for range c.after {
				s.step(500*ms, false)
			}
		}
		for range neighbours {
			s.step(500*ms, false)
		}
		if got := s.lost(); got != c.want {
			t.Errorf("%s: %v lost, want %v", c.name, got, c.want)
		}
	}
}
