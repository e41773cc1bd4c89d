package schedule

import (
	"slices"
	"testing"
)

func TestChimeraGolden(t *testing.T) {
	must := made(t)
	for _, tc := range []struct {
		stages, micros       int
		equal, twice, normal Nanos // f = b, b = 2f, and 1F1B's with b = 2f
		peak                 []int
	}{
		{4, 4, 10, 16, 21, []int{3, 4, 4, 3}},
		{8, 8, 22, 36, 45, []int{5, 6, 7, 8, 8, 7, 6, 5}},
		{16, 16, 46, 76, 93, []int{9, 10, 11, 12, 13, 14, 15, 16, 16, 15, 14, 13, 12, 11, 10, 9}},
		{8, 16, 38, 66, 69, []int{5, 6, 7, 8, 8, 7, 6, 5}},
	} {
		shape := Shape{Stages: tc.stages, Micros: tc.micros}
		s := must(Chimera(Options{Shape: shape}))
		line := simulate(t, s, uniform(tc.stages, 1, 1, Hop{}))
		twice := simulate(t, s, uniform(tc.stages, 1, 2, Hop{})).Makespan
		normal := simulate(t, must(Depth(shape, 1)), uniform(tc.stages, 1, 2, Hop{})).Makespan
		if line.Makespan != tc.equal || twice != tc.twice || normal != tc.normal || !slices.Equal(line.PeakLive, tc.peak) {
			t.Errorf("%d stages, %d micro-batches: %d, %d, %d, live %v, want %+v", tc.stages, tc.micros, line.Makespan, twice, normal, line.PeakLive, tc)
		}
	}
}

// TestChimeraNeedsShortLinks has the latency of a message as long as a whole micro-batch.
func TestChimeraNeedsShortLinks(t *testing.T) {
	must := made(t)
	shape := Shape{Stages: 8, Micros: 16}
	far := uniform(8, 1, 2, Hop{Latency: 3})
	if got := simulate(t, must(Chimera(Options{Shape: shape})), far).Makespan; got != 159 {
		t.Errorf("Chimera takes %d, want 159", got)
	}
	if got := simulate(t, must(Depth(shape, 1)), far).Makespan; got != 189 {
		t.Errorf("1F1B takes %d, want 189", got)
	}
}

// TestChimeraBubbles is the formula for every number of pairs, with direct concatenation
// to several units, and that doubling closes the gaps between units.
func TestChimeraBubbles(t *testing.T) {
	must := made(t)
	for p := 2; p <= 8; p += 2 {
		for n := p; n <= 32; n += p {
			for pairs := 1; pairs <= p/2; pairs++ {
				if p/2%pairs != 0 {
					continue
				}
				o := Options{Shape: Shape{Stages: p, Micros: n}, Pairs: pairs}
				got := simulate(t, must(Chimera(o)), uniform(p, 1, 1, Hop{})).Makespan
				if want := Nanos(2*n + p/pairs - 2); got != want {
					t.Errorf("%d stages, %d micro-batches, %d pairs: %d, want %d", p, n, pairs, got, want)
				}
				if n%(2*p) != 0 {
					continue
				}
				got = simulate(t, must(ChimeraDoubled(o)), uniform(p, 1, 2, Hop{})).Makespan
				if most := Nanos(3*n + 2*(p-2)); got > most {
					t.Errorf("doubled, %d stages, %d micro-batches, %d pairs: %d, want %d at most", p, n, pairs, got, most)
				}
			}
		}
	}
}

// TestChimeraReplicas checks the shares: contiguous, in replica order, whatever the
// number of micro-batches.
func TestChimeraReplicas(t *testing.T) {
	s := made(t)(Chimera(Options{Shape: Shape{Stages: 4, Micros: 11, Replica: 2, FirstMicro: 20}, Pairs: 2}))
	first := map[Replica]Micro{2: 20, 3: 23, 4: 26, 5: 29}
	for _, actions := range s.Workers {
		seen := map[Replica]int{}
		for _, a := range actions {
			if a.Op == Forward {
				if seen[a.Replica]++; a.Micro != first[a.Replica]+Micro(seen[a.Replica]-1) {
					t.Fatalf("%v is the forward %d of its replica", a, seen[a.Replica])
				}
			}
		}
		for r, want := range map[Replica]int{2: 3, 3: 3, 4: 3, 5: 2} {
			if seen[r] != want {
				t.Errorf("replica %d has %d micro-batches, want %d", r, seen[r], want)
			}
		}
	}
}
