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

// exhaust is the least makespan of all pairs of all compositions that fit, simulated one by one.
func (p Interleaving) exhaust(t *testing.T) schedule.Nanos {
	t.Helper()
	least := schedule.Nanos(math.MaxInt64)
	all := compositions(nil, p.Micros)
	for depth := 1; depth <= p.deepest(); depth++ {
		for _, forward := range all {
			for _, backward := range all {
				if end, peak := p.simulate(t, Grouping{Depth: depth, Forward: forward, Backward: backward}); end < least && within(peak, p.Caps) {
					least = end
				}
			}
		}
	}
	return least
}

// simulate is a grouping's makespan and its peaks; one that comes to a stop takes for ever.
func (p Interleaving) simulate(t *testing.T, g Grouping) (schedule.Nanos, []int) {
	t.Helper()
	built, err := g.Spec(p).Build(schedule.Group{Stages: len(p.Costs.Stages), Shares: []schedule.Share{{Micros: p.Micros}}})
	if err != nil {
		t.Fatal(err)
	}
	line, err := schedule.Simulate(built, schedule.Timing{Replicas: []schedule.Costs{p.Costs}})
	if errors.Is(err, schedule.ErrInvalid) {
		return math.MaxInt64, nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return line.Makespan, line.PeakLive
}

func within(peak, caps []int) bool {
	for w, limit := range caps {
		if peak[w] > limit {
			return false
		}
	}
	return true
}

// compositions are all lists that begin with head and go on with numbers that add up to micros.
func compositions(head []int, micros int) (lists [][]int) {
	if micros == 0 {
		return [][]int{slices.Clone(head)}
	}
	for n := 1; n <= micros; n++ {
		lists = append(lists, compositions(append(head, n), micros-n)...)
	}
	return lists
}

// mixed has stages and messages of any times.
func mixed(rng *rand.Rand, workers, chunks, micros int) Interleaving {
	p := Interleaving{Workers: workers, Micros: micros}
	some := func(n int) schedule.Nanos { return schedule.Nanos(rng.IntN(n)) }
	for s := range workers * chunks {
		p.Costs.Stages = append(p.Costs.Stages, schedule.StageTime{Forward: 1 + some(9), Input: 1 + some(9), Weight: some(9)})
		if s > 0 {
			p.Costs.Boundaries = append(p.Costs.Boundaries, schedule.Boundary{Activation: schedule.Hop{Transfer: some(8), Latency: some(20)}, Gradient: schedule.Hop{Transfer: some(8), Latency: some(20)}})
		}
	}
	return p
}

// TestEveryGroupingIsLookedAt compares with all compositions of all sizes.
func TestEveryGroupingIsLookedAt(t *testing.T) {
	rng := rand.New(rand.NewPCG(51, 52))
	capped, none := 0, 0
	for range 40 {
		p := mixed(rng, 2+rng.IntN(2), 2+rng.IntN(2), 2+rng.IntN(4))
		if rng.IntN(2) == 0 {
			p.Caps = make([]int, p.Workers)
			for i := range p.Caps {
				p.Caps[i] = 1 + rng.IntN(10)
			}
			capped++
		}
		want := p.exhaust(t)
		g, err := ChooseGroups(p)
		if want == math.MaxInt64 {
			if none++; err == nil {
				t.Fatalf("%+v: nothing fits, chosen is %+v", p, g)
			}
			continue
		}
		if err != nil || g.Makespan != want || !g.Proven {
			t.Fatalf("%+v: chosen is %+v (%v), %d is possible", p, g, err, want)
		}
		if end, peak := p.simulate(t, g); end != want || !slices.Equal(peak, g.Peak) {
			t.Fatalf("%v takes %d and keeps %v, chosen is %+v", g.Spec(p), end, peak, g)
		}
		if p.Bound() > want {
			t.Fatalf("%+v: bound %d, %d is possible", p, p.Bound(), want)
		}
	}
	if capped < 10 || none == 0 {
		t.Errorf("%d with caps, %d without a schedule", capped, none)
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
		if end, _ := p.simulate(t, g); end == math.MaxInt64 {
			t.Errorf("groups %v come to a stop", g.Forward)
		}
	}
	behind := Grouping{Depth: 3, Forward: []int{12, 16}, Backward: []int{12, 16}}
	if end, _ := p.simulate(t, behind); end < math.MaxInt64 {
		t.Errorf("gradients before their forward: makespan %d", end)
	}
}

// TestGroupRunsAreSimulations has any grouping of any pipeline take as long, and keep as much, as
// the simulator says.
func TestGroupRunsAreSimulations(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 13))
	ended := 0
	for range 400 {
		p := mixed(rng, 2+rng.IntN(4), 2+rng.IntN(2), 1+rng.IntN(9))
		all := compositions(nil, p.Micros)
		g := Grouping{Depth: 1 + rng.IntN(3), Forward: all[rng.IntN(len(all))], Backward: all[rng.IntN(len(all))]}
		end, peak := p.simulate(t, g)
		s := newGroupSearch(p, 1)
		if s.try(g.Depth, g.Forward, g.Backward); s.best.Makespan != end || (end < math.MaxInt64 && !slices.Equal(s.best.Peak, peak)) {
			t.Fatalf("%v of %+v takes %d and keeps %v, is timed as %+v", g.Spec(p), p, end, peak, s.best)
		}
		if end < math.MaxInt64 {
			ended++
		}
	}
	if ended < 50 {
		t.Errorf("%d of 400 come to an end", ended)
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
