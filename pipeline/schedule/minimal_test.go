package schedule

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// uniform are costs of p equal stages, f and b per micro-batch, with equal hops.
func uniform(p int, f, b Nanos, hop Hop) Costs {
	c := Costs{Stages: make([]StageTime, p), Boundaries: make([]Boundary, p-1)}
	for i := range c.Stages {
		c.Stages[i] = StageTime{Forward: f, Input: b / 2, Weight: b - b/2}
	}
	for i := range c.Boundaries {
		c.Boundaries[i] = Boundary{Activation: hop, Gradient: hop}
	}
	return c
}

func golden() Costs {
	c := uniform(4, 1, 2, Hop{})
	c.Boundaries[1] = Boundary{Activation: Hop{2, 4}, Gradient: Hop{2, 4}}
	return c
}

func makespan(t *testing.T, c Costs, warmups []int, micros int) Nanos {
	t.Helper()
	s, err := Warmups(Shape{Stages: len(c.Stages), Micros: micros}, warmups)
	if err != nil {
		t.Fatal(err)
	}
	end, err := Makespan(s, Timing{Replicas: []Costs{c}})
	if err != nil {
		t.Fatal(err)
	}
	return end
}

func TestMinimalWarmupsGolden(t *testing.T) {
	c := golden()
	if got := makespan(t, c, []int{3, 2, 1, 0}, 64); got != 585 {
		t.Errorf("1F1B takes %d, want 585", got)
	}
	w, p, err := MinimalWarmups(c, nil)
	if err != nil || !slices.Equal(w, []int{7, 6, 1, 0}) || p != 3 {
		t.Fatalf("warm-ups %v period %d error %v, want [7 6 1 0] and 3", w, p, err)
	}
	if got := makespan(t, c, w, 64); got != 213 {
		t.Errorf("the rule takes %d, want 213", got)
	}
	w, p, err = MinimalWarmups(c, []int{4, 3, 2, 1})
	if err != nil || !slices.Equal(w, []int{3, 2, 0, 0}) || p != 7 {
		t.Errorf("with the memory of 1F1B: %v period %d error %v, want [3 2 0 0] and 7", w, p, err)
	}
	if got := makespan(t, c, w, 64); got >= 585 {
		t.Errorf("with the memory of 1F1B the rule takes %d, not less than 585", got)
	}
}

func TestMinimalWarmupsRefuses(t *testing.T) {
	for name, call := range map[string]func() error{
		"no stages":      func() error { _, _, err := MinimalWarmups(Costs{}, nil); return err },
		"boundaries":     func() error { _, _, err := MinimalWarmups(Costs{Stages: make([]StageTime, 2)}, nil); return err },
		"number of caps": func() error { _, _, err := MinimalWarmups(golden(), []int{1}); return err },
		"cap of nothing": func() error { _, _, err := MinimalWarmups(golden(), []int{1, 1, 0, 1}); return err },
		"negative time": func() error {
			c := golden()
			c.Stages[0].Forward = -1
			_, _, err := MinimalWarmups(c, nil)
			return err
		},
	} {
		if err := call(); !errors.Is(err, ErrBadCosts) {
			t.Errorf("%s: %v, want ErrBadCosts", name, err)
		}
	}
}

// random makes a heterogeneous pipeline; links are different each way.
func random(rng *rand.Rand) Costs {
	p := 2 + rng.IntN(6)
	c := Costs{Stages: make([]StageTime, p), Boundaries: make([]Boundary, p-1)}
	for i := range c.Stages {
		f := Nanos(1 + rng.IntN(20))
		c.Stages[i] = StageTime{Forward: f, Input: f, Weight: Nanos(rng.IntN(20))}
	}
	hop := func() Hop { return Hop{Nanos(rng.IntN(30)), Nanos(rng.IntN(200))} }
	for i := range c.Boundaries {
		c.Boundaries[i] = Boundary{Activation: hop(), Gradient: hop()}
	}
	return c
}

// steady is the time that micros more micro-batches take once all is under way.
func steady(t *testing.T, c Costs, warmups []int, micros int) Nanos {
	return makespan(t, c, warmups, 2*micros) - makespan(t, c, warmups, micros)
}

func TestMinimalWarmupsReachTheFloorAndNoneIsTooLarge(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	lowered := 0
	for range 150 {
		c := random(rng)
		w, p, err := MinimalWarmups(c, nil)
		if err != nil || p != c.Floor() {
			t.Fatalf("%+v: period %d error %v, want %d", c, p, err, c.Floor())
		}
		micros := 10 * (w[0] + 2)
		if got := steady(t, c, w, micros); got != p*Nanos(micros) {
			t.Fatalf("%+v with %v: %d micro-batches take %d, want %d each", c, w, micros, got, p)
		}
		for r := range w {
			if w[r] == 0 {
				continue
			}
			lowered++
			less := slices.Clone(w)
			less[r]--
			if c.Period(less) <= p {
				t.Fatalf("%+v: %v has period %d, but %v is said to be minimal", c, less, c.Period(less), w)
			}
			if r+1 < len(w) && less[r] < less[r+1] {
				continue // the generator refuses it: the pipeline would stand still
			}
			if got := steady(t, c, less, micros); got <= p*Nanos(micros) {
				t.Fatalf("%+v: %v needs %d for %d, as good as %v", c, less, got, micros, w)
			}
		}
	}
	if lowered < 300 {
		t.Errorf("only %d warm-ups were lowered", lowered)
	}
}

func TestMinimalWarmupsUnderCaps(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 150 {
		c := random(rng)
		caps := make([]int, len(c.Stages))
		for r := range caps {
			caps[r] = 1 + rng.IntN(8)
		}
		w, p, err := MinimalWarmups(c, caps)
		if err != nil {
			t.Fatal(err)
		}
		for r := range w {
			if w[r]+1 > caps[r] {
				t.Fatalf("caps %v: warm-ups %v", caps, w)
			}
		}
		if c.Period(w) > p {
			t.Fatalf("%+v: %v has period %d, promised was %d", c, w, c.Period(w), p)
		}
		if p > c.Floor() && c.fits(p-1, caps) {
			t.Fatalf("%+v caps %v: period %d would fit, got %d", c, caps, p-1, p)
		}
		const micros = 840 // a multiple of every depth up to 8, so that cycles are whole
		if got, most := steady(t, c, w, micros), p*Nanos(micros); got > most {
			t.Fatalf("%+v: %v takes %d for %d micro-batches, period %d was promised", c, w, got, micros, p)
		}
	}
}

// TestDepthPeriod is the formula of depth-d 1F1B, within 2%.
func TestDepthPeriod(t *testing.T) {
	for _, p := range []int{2, 3, 4, 6, 8} {
		for d := 1; d <= 4; d++ {
			for _, latency := range []Nanos{0, 500, 1000, 1500, 3000, 5000} {
				c := uniform(p, 1000, 2000, Hop{Latency: latency})
				round := Nanos(p)*3000 + 2*Nanos(p-1)*latency
				want := max(3000, ceilDiv(round, Nanos((p-1)*d+1)))
				if got := c.Period(DepthWarmups(p, d)); got != want {
					t.Errorf("p=%d d=%d L=%d: period %d, want %d", p, d, latency, got, want)
				}
				micros := 20 * (p*d + 1)
				got := steady(t, c, DepthWarmups(p, d), micros) / Nanos(micros)
				if got < want-want/50 || got > want+want/50 {
					t.Errorf("p=%d d=%d L=%d: %d per micro-batch, want about %d", p, d, latency, got, want)
				}
			}
		}
	}
}

// TestJitter repeats figures of random extra latency for p=4, T=3, N=60 that a second,
// naive simulation gave: depth is what hides it.
func TestJitter(t *testing.T) {
	c := uniform(4, 1000, 2000, Hop{})
	for _, tc := range []struct {
		mean Nanos
		want [3]Nanos // for depth 1, 2, 3, in thousands, averaged over seeds
	}{{1000, [3]Nanos{320, 228, 203}}, {2000, [3]Nanos{452, 313, 259}}} {
		for d := 1; d <= 3; d++ {
			s, err := Depth(Shape{Stages: 4, Micros: 60}, d)
			if err != nil {
				t.Fatal(err)
			}
			const seeds = 40
			var sum Nanos
			for seed := range uint64(seeds) {
				timing := Timing{Replicas: []Costs{c}, Jitter: Jitter{Seed: seed, Mean: tc.mean}}
				end, err := Makespan(s, timing)
				if err != nil {
					t.Fatal(err)
				}
				again, _ := Makespan(s, timing)
				if again != end {
					t.Fatalf("the same seed gives %d and %d", end, again)
				}
				sum += end
			}
			got, want := sum/seeds, tc.want[d-1]*1000
			if got < want*96/100 || got > want*104/100 {
				t.Errorf("mean %d depth %d: %d, want about %d", tc.mean, d, got, want)
			}
		}
	}
}
