package elastic

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/schedule"
)

// interleaving has like stages, f = 2 and b = 4 half units, and messages of that latency
// between workers.
func interleaving(workers, chunks, micros int, latency schedule.Nanos) Interleaving {
	p := Interleaving{Workers: workers, Micros: micros}
	for s := range workers * chunks {
		p.Costs.Stages = append(p.Costs.Stages, schedule.StageTime{Forward: 2, Input: 2, Weight: 2})
		if s > 0 {
			hop := schedule.Hop{Latency: latency}
			p.Costs.Boundaries = append(p.Costs.Boundaries, schedule.Boundary{Activation: hop, Gradient: hop})
		}
	}
	return p
}

// TestUnequalGroupsGolden has the specification's points of p=4, v=2, f=1, b=2, c=1.5, N=12
// as caps: what is chosen ends at least as soon with no more memory.
func TestUnequalGroupsGolden(t *testing.T) {
	for _, tc := range []struct {
		peak     int
		makespan schedule.Nanos
	}{{13, 96}, {14, 93}, {15, 92}, {19, 90}} {
		p := interleaving(4, 2, 12, 3)
		p.Caps = slices.Repeat([]int{tc.peak}, 4)
		g, err := ChooseGroups(p)
		if err != nil || g.Makespan > 2*tc.makespan || slices.Max(g.Peak) > tc.peak {
			t.Errorf("peak %d: chosen is %+v (%v), makespan %d halves is possible", tc.peak, g, err, 2*tc.makespan)
		}
		t.Logf("peak %d: %v, makespan %d halves", tc.peak, g.Spec(p), g.Makespan)
	}
}

// TestEveryGroupingIsLookedAt compares with all compositions of all sizes.
func TestEveryGroupingIsLookedAt(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	capped, none := 0, 0
	for range 40 {
		p := interleaving(2+rng.IntN(2), 2, 2+rng.IntN(5), schedule.Nanos(rng.IntN(12)))
		if rng.IntN(2) == 0 {
			p.Caps = make([]int, p.Workers)
			for i := range p.Caps {
				p.Caps[i] = 1 + rng.IntN(10)
			}
			capped++
		}
		want := schedule.Nanos(math.MaxInt64)
		for depth := 1; depth <= p.deepest(); depth++ {
			all := compositions(nil, p.Micros, 1, p.Micros)
			for _, forward := range all {
				for _, backward := range all {
					g := Grouping{Depth: depth, Forward: forward, Backward: backward}
					if err := p.time(&g); err != nil {
						t.Fatal(err)
					}
					if g.Makespan < want && p.fits(g) {
						want = g.Makespan
					}
				}
			}
		}
		g, err := ChooseGroups(p)
		if want == math.MaxInt64 {
			if none++; err == nil {
				t.Fatalf("%+v: nothing fits, chosen is %+v", p, g)
			}
			continue
		}
		if err != nil || g.Makespan != want {
			t.Fatalf("%+v: chosen is %+v (%v), %d is possible", p, g, err, want)
		}
		built, err := g.Spec(p).Build(schedule.Group{Stages: len(p.Costs.Stages), Shares: []schedule.Share{{Micros: p.Micros}}})
		if err != nil {
			t.Fatal(err)
		}
		if end, err := schedule.Makespan(built, schedule.Timing{Replicas: []schedule.Costs{p.Costs}}); err != nil || end != want {
			t.Fatalf("%v takes %d (%v), chosen for %d", g.Spec(p), end, err, want)
		}
	}
	if capped < 10 || none == 0 {
		t.Errorf("%d with caps, %d without a schedule", capped, none)
	}
}

// TestSidesInTurnsComeCloseToAllPairs where all pairs can be timed: equal in most, a little longer
// in the others, and for 16 micro-batches no longer than with the few groups that pairs allow.
func TestSidesInTurnsComeCloseToAllPairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	equal, cases := 0, 16
	for i := range cases {
		micros := 8 + rng.IntN(3)
		p := interleaving(4, 2, micros, schedule.Nanos(rng.IntN(8)))
		lists := groupings(micros, 2)
		var pairs, turns Grouping
		if err := errors.Join(p.pairs(&pairs, 1, lists), p.alternate(&turns, 1, lists, 2)); err != nil {
			t.Fatal(err)
		}
		if turns.Makespan == pairs.Makespan {
			equal++
		}
		if turns.Makespan < pairs.Makespan || turns.Makespan > pairs.Makespan*21/20 {
			t.Errorf("case %d, %d micro-batches: %+v in turns, %+v of all pairs", i, micros, turns, pairs)
		}
	}
	if equal < cases*3/4 {
		t.Errorf("the best of all pairs in %d of %d cases", equal, cases)
	}
	p := interleaving(4, 2, 16, 3)
	var few Grouping
	if err := p.pairs(&few, 1, compositions(nil, 16, 2, 2)); err != nil {
		t.Fatal(err)
	}
	if all, err := ChooseGroups(p); err != nil || all.Makespan > few.Makespan {
		t.Errorf("%+v (%v), of two groups there is %+v", all, err, few)
	}
}

func TestManyMicroBatchesHaveEqualGroups(t *testing.T) {
	p := interleaving(4, 2, 64, 6)
	g, err := ChooseGroups(p)
	if err != nil || !slices.Equal(g.Forward, g.Backward) || g.Makespan > 64*12*11/10 {
		t.Errorf("%+v (%v)", g, err)
	}
	text := g.Spec(p).String()
	if back, err := schedule.ParseSpec(text); err != nil || back.String() != text {
		t.Errorf("%s: %v", text, err)
	}
}

// TestGroupsThatDoNotDivide has a rest that, put into the last group, gives gradients before
// their forward.
func TestGroupsThatDoNotDivide(t *testing.T) {
	p := interleaving(4, 2, 28, 9)
	for size := 10; size < 28; size++ {
		g := Grouping{Depth: 3, Forward: equalGroups(28, size), Backward: equalGroups(28, size)}
		if err := p.time(&g); err != nil || !p.fits(g) {
			t.Errorf("groups %v come to a stop (%v)", g.Forward, err)
		}
	}
	behind := Grouping{Depth: 3, Forward: []int{12, 16}, Backward: []int{12, 16}}
	if err := p.time(&behind); err != nil || p.fits(behind) {
		t.Errorf("gradients before their forward: makespan %d (%v)", behind.Makespan, err)
	}
}

func TestChooseGroupsRefuses(t *testing.T) {
	for what, p := range map[string]Interleaving{
		"nothing":       {},
		"one chunk":     interleaving(4, 1, 8, 0),
		"one worker":    interleaving(1, 4, 8, 0),
		"no micros":     interleaving(2, 2, 0, 0),
		"caps of fewer": func() Interleaving { p := interleaving(2, 2, 4, 0); p.Caps = []int{9}; return p }(),
	} {
		if _, err := ChooseGroups(p); !errors.Is(err, ErrBadProblem) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func BenchmarkChooseGroups(b *testing.B) {
	p := interleaving(4, 2, 12, 3)
	for b.Loop() {
		if _, err := ChooseGroups(p); err != nil {
			b.Fatal(err)
		}
	}
}
