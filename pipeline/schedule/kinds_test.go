package schedule

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// split are costs of n equal stages with forward, input and weight gradient apart.
func split(n int, f, i, w Nanos) Costs {
	c := uniform(n, 0, 0, Hop{})
	for s := range c.Stages {
		c.Stages[s] = StageTime{Forward: f, Input: i, Weight: w}
	}
	return c
}

// simulate validates a schedule and times it with the same costs for every replica.
func simulate(t *testing.T, s Schedule, c Costs) Timeline {
	t.Helper()
	if err := Validate(s, Limits{}); err != nil {
		t.Fatal(err)
	}
	line, err := Simulate(s, Timing{Replicas: slices.Repeat([]Costs{c}, s.Replicas())})
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func made(t *testing.T) func(Schedule, error) Schedule {
	return func(s Schedule, err error) Schedule {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// longest is the most time between a worker's first and last action.
func longest(line Timeline) Nanos {
	var most Nanos
	for _, spans := range line.Workers {
		most = max(most, spans[len(spans)-1].End-spans[0].Start)
	}
	return most
}

// sizes are the numbers of workers and micro-batches of the property tests.
func sizes(visit func(p, n int)) {
	for p := 1; p <= 8; p++ {
		for n := 1; n <= 32; n++ {
			if !testing.Short() || (p%3 == 2 && n%5 < 2) {
				visit(p, n)
			}
		}
	}
}

// chunksOf are the numbers of stages per worker that a kind is made for.
func chunksOf(kind string) []int {
	switch kind {
	case "interleaved", "depth-first", "breadth-first":
		return []int{1, 2, 3, 4}
	case "zb-v", "v-half", "v-min":
		return []int{2}
	case "hanayo":
		return []int{2, 4}
	}
	return []int{1}
}

// TestEveryKindValidates also checks that programs survive their text form and the
// passes, and that no worker is busier than its work.
func TestEveryKindValidates(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			sizes(func(p, n int) {
				if kind.Name == "zb-elastic" && (p%3 != 2 || n%5 > 1) {
					return // each is a search
				}
				for _, chunks := range chunksOf(kind.Name) {
					o := Options{Shape: Shape{Stages: p * chunks, Micros: n, FirstMicro: 3}, Chunks: chunks}
					o.Costs = uniform(o.Stages, 1, 2, Hop{Transfer: 1, Latency: 3})
					s, err := kind.Make(o)
					if strings.HasPrefix(kind.Name, "chimera") && (p%2 != 0 || n < 2) {
						if !errors.Is(err, ErrBadShape) {
							t.Fatalf("%d stages, %d micro-batches: %v", p, n, err)
						}
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					for _, form := range []Schedule{s, lower(s)} {
						line := simulate(t, form, uniform(o.Stages, 2, 4, Hop{Transfer: 1, Latency: 3}))
						if least := Nanos(n*chunks) * 6; line.Makespan < least {
							t.Fatalf("%d x %d: makespan %d is less than the work of %d", o.Stages, n, line.Makespan, least)
						}
						if again, err := Parse(form.String()); err != nil || again.String() != form.String() || again.Segments != form.Segments {
							t.Fatalf("%d x %d: %v after its text form", o.Stages, n, err)
						}
					}
				}
			})
		})
	}
}

// TestBubbles is each kind's makespan without communication: work, and the bubble of the
// literature.
func TestBubbles(t *testing.T) {
	must := made(t)
	sizes(func(p, n int) {
		gap, micros := Nanos(p-1), Nanos(n)
		want := func(name string, got, want Nanos) {
			t.Helper()
			if got != want {
				t.Fatalf("%s of %d workers, %d micro-batches: %d, want %d", name, p, n, got, want)
			}
		}
		shape, vee := Shape{Stages: p, Micros: n}, Shape{Stages: 2 * p, Micros: n}
		uneven := split(p, 4, 5, 3)
		for k := 1; k <= 4; k++ {
			want("kFkB", simulate(t, must(KFKB(shape, k)), uniform(p, 2, 4, Hop{})).Makespan, (micros+gap)*6)
			want("Seq1F1B", simulate(t, must(Segmented(shape, k)), uniform(p, 2, 4, Hop{})).Makespan, (micros*Nanos(k)+gap)*6)
		}
		want("2BP", simulate(t, must(TwoStage(shape, 0)), uneven).Makespan, micros*12+gap*9)
		for v := 1; v <= 4; v++ {
			for _, g := range []int{p, p + 1, 2 * p, n} {
				if n < p || n%g != 0 {
					continue
				}
				s := must(Grouped(Options{Shape: Shape{Stages: p * v, Micros: n}, Chunks: v, Group: g}))
				want(fmt.Sprintf("%d chunks in groups of %d", v, g), simulate(t, s, uniform(p*v, 2, 4, Hop{})).Makespan, micros*Nanos(v)*6+gap*6)
			}
		}
		if n >= p {
			want("ZB-H1", simulate(t, must(ZBH1(shape)), uneven).Makespan, micros*12+gap*6)
		}
		if n >= 2*p-1 {
			want("ZB-H2", longest(simulate(t, must(ZBH2(shape)), uneven)), micros*12+gap*3)
			want("ZB-H2 of equal times", longest(simulate(t, must(ZBH2(shape)), split(p, 1, 1, 1))), micros*3)
			want("ZB-V", longest(simulate(t, must(ZBV(vee)), split(2*p, 1, 1, 1))), micros*6)
			// From the first begin to the last end there is the fill, too: a step begins after the commit of the one before.
			want("a step of ZB-H2", simulate(t, must(ZBH2(shape)), split(p, 1, 1, 1)).Makespan, micros*3+gap)
			want("a step of ZB-V", simulate(t, must(ZBV(vee)), split(2*p, 1, 1, 1)).Makespan, micros*6+gap)
		}
		if n >= 2*p { // the papers' figures, to two slots
			half := longest(simulate(t, must(VHalf(vee)), split(2*p, 1, 1, 1))) - micros*6
			least := longest(simulate(t, must(VMin(vee)), split(2*p, 1, 1, 1))) - micros*6
			if half > gap*3 || half < gap*3-2 || least > gap*4+1 || least < gap*4-1 {
				t.Fatalf("V-Half and V-Min of %d workers, %d micro-batches have bubbles of %d and %d", p, n, half, least)
			}
		}
		for waves := 1; waves <= 2; waves++ {
			if n != p {
				continue
			}
			s := must(Hanayo(Options{Shape: Shape{Stages: 2 * waves * p, Micros: n}, Chunks: 2 * waves}))
			got := simulate(t, s, uniform(2*waves*p, 2, 4, Hop{})).Makespan - micros*12*Nanos(waves)
			if ideal := gap * 8; got < ideal || got > ideal+ideal/10 { // two thirds of 1F1B's, of a chunk
				t.Fatalf("Hanayo of %d workers, %d waves: bubble %d, want %d to a tenth more", p, waves, got, ideal)
			}
		}
	})
}

// TestPeaks compares each kind's memory with its promise, in activations of stages.
func TestPeaks(t *testing.T) {
	must := made(t)
	sizes(func(p, n int) {
		shape, vee := Shape{Stages: p, Micros: n}, Shape{Stages: 2 * p, Micros: n}
		check := func(name string, s Schedule, want func(r int) int) {
			t.Helper()
			for r, actions := range s.Workers {
				if got, most := int(Limits{}.peak(actions)), want(r); got > most {
					t.Fatalf("%s of %d workers, %d micro-batches: worker %d keeps %d, want %d at most", name, p, n, r, got, most)
				}
			}
		}
		for k := 1; k <= 4; k++ {
			check("kFkB", must(KFKB(shape, k)), func(r int) int { return min(k*(p-r), n) })
			check("2BP", must(TwoStage(shape, k)), func(r int) int { return p - r - 1 + k })
			check("Seq1F1B", must(Segmented(shape, k)), func(r int) int { return p - r - 1 + k })
		}
		check("ZB-H1", must(ZBH1(shape)), func(int) int { return p })
		check("ZB-H2", must(ZBH2(shape)), func(int) int { return 2*p - 1 })
		check("ZB-V", must(ZBV(vee)), func(int) int { return 2 * p })
		check("V-Half", must(VHalf(vee)), func(int) int { return p + 2 })
		check("V-Min", must(VMin(vee)), func(int) int { return (2*(p+4) + 2) / 3 })
		for v := 1; v <= 4; v++ {
			o := Options{Shape: Shape{Stages: p * v, Micros: n}, Chunks: v}
			check("depth-first", must(Grouped(o)), func(r int) int {
				first, _ := o.groups("", nil, p, p)
				return min((v-1)*first[0]+min(v, 2)*(p-1-r)+1, n*v)
			})
			o.Group = n
			check("breadth-first", must(Grouped(o)), func(int) int { return n * v })
		}
		for depth := 1; depth <= 2; depth++ {
			check("Hanayo", must(Hanayo(Options{Shape: vee, Depth: depth})), func(int) int { return min(n, depth*p) * 2 })
		}
	})
}

// TestUnequalGroupsProgress takes every composition of few micro-batches as both kinds of
// groups: whatever is accepted runs, and the rest is refused with a grid.
func TestUnequalGroupsProgress(t *testing.T) {
	accepted, refused := 0, 0
	for _, forward := range compositions(6) {
		for _, backward := range compositions(6) {
			s, err := Grouped(Options{Shape: Shape{Stages: 6, Micros: 6}, Chunks: 2, Forward: forward, Backward: backward})
			if err != nil {
				t.Fatal(err)
			}
			if err := Validate(s, Limits{}); err != nil {
				if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "[") {
					t.Fatalf("%v, %v: %v", forward, backward, err)
				}
				refused++
				continue
			}
			accepted++
		}
	}
	if accepted < 50 || refused < 50 {
		t.Errorf("%d accepted, %d refused", accepted, refused)
	}
}

// compositions are all lists of positive numbers with that sum.
func compositions(n int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for first := 1; first <= n; first++ {
		for _, rest := range compositions(n - first) {
			all = append(all, append([]int{first}, rest...))
		}
	}
	return all
}

// TestGroupedGolden repeats the figures of groups on a link of latency 1.5 f.
func TestGroupedGolden(t *testing.T) {
	must := made(t)
	for _, tc := range []struct {
		forward, backward []int
		makespan          Nanos
		peak              int
	}{
		{[]int{6, 6}, []int{6, 6}, 96, 13},
		{[]int{7, 5}, []int{5, 7}, 93, 14},
		{[]int{8, 4}, []int{5, 7}, 92, 15},
		{[]int{12}, []int{12}, 90, 19},
	} {
		s := must(Grouped(Options{Shape: Shape{Stages: 8, Micros: 12}, Forward: tc.forward, Backward: tc.backward}))
		if line := simulate(t, s, uniform(8, 2, 4, Hop{Latency: 3})); line.Makespan != 2*tc.makespan || line.PeakLive[0] != tc.peak {
			t.Errorf("%v / %v: makespan %d/2, %d live, want %d and %d", tc.forward, tc.backward, line.Makespan, line.PeakLive[0], tc.makespan, tc.peak)
		}
	}
	for _, tc := range []struct {
		depth, group int
		latency      Nanos
		period       Nanos // of four micro-batches, chunk by chunk, in units of f/12
	}{{2, 4, 18, 39}, {2, 5, 18, 36}, {3, 6, 36, 38}, {3, 7, 36, 36}} {
		micros := 20 * tc.group
		end := func(n int) Nanos {
			s := must(Grouped(Options{Shape: Shape{Stages: 8, Micros: n}, Depth: tc.depth, Group: tc.group}))
			return simulate(t, s, uniform(8, 12, 24, Hop{Latency: tc.latency})).Makespan
		}
		if got := (end(2*micros) - end(micros)) / Nanos(2*micros); got != tc.period {
			t.Errorf("depth %d groups of %d latency %d: period %d, want %d", tc.depth, tc.group, tc.latency, got, tc.period)
		}
	}
}

func TestGroupTables(t *testing.T) {
	for _, tc := range []struct {
		workers, group, micros int
		want                   string
	}{{2, 2, 4, "0 1 0 1 2 3 2 3"}, {2, 3, 5, "0 1 2 0 1 2 3 4 3 4"}} {
		s := made(t)(Grouped(Options{Shape: Shape{Stages: 2 * tc.workers, Micros: tc.micros}, Group: tc.group}))
		for _, op := range []Op{Forward, Backward} {
			var order []string
			for _, a := range s.Workers[0] {
				if a.Op == op {
					order = append(order, fmt.Sprint(a.Micro))
				}
			}
			if got := strings.Join(order, " "); got != tc.want {
				t.Errorf("%v in groups of %d: %s, want %s", op, tc.group, got, tc.want)
			}
		}
	}
}

// TestKFKBQueuesItsBursts has a link with f < transfer < f+b.
func TestKFKBQueuesItsBursts(t *testing.T) {
	must := made(t)
	c := uniform(4, 10, 20, Hop{Transfer: 29})
	period := func(make func(n int) Schedule) Nanos {
		const micros = 180
		return (simulate(t, make(2*micros), c).Makespan - simulate(t, make(micros), c).Makespan) / micros
	}
	if got := period(func(n int) Schedule { return must(KFKB(Shape{Stages: 4, Micros: n}, 3)) }); got != 39 {
		t.Errorf("kFkB with k=3: period %d, want 39", got)
	}
	if got := period(func(n int) Schedule { return must(Depth(Shape{Stages: 4, Micros: n}, 3)) }); got != 30 {
		t.Errorf("depth 3: period %d, want 30", got)
	}
}

// TestKFKBPeriod is its formula on links of latency.
func TestKFKBPeriod(t *testing.T) {
	must := made(t)
	for _, p := range []int{2, 4, 6} {
		for k := 1; k <= 4; k++ {
			for _, latency := range []Nanos{0, 600, 1500, 3000, 5000} {
				c := uniform(p, 1000, 2000, Hop{Latency: latency})
				micros := 20 * k * p
				end := func(n int) Nanos { return simulate(t, must(KFKB(Shape{Stages: p, Micros: n}, k)), c).Makespan }
				got := (end(2*micros) - end(micros)) / Nanos(micros)
				want := max(3000, (Nanos(p-1+k)*3000+2*Nanos(p-1)*latency)/Nanos(k*p))
				if got < want-want/50 || got > want+want/50 {
					t.Errorf("p=%d k=%d L=%d: period %d, want about %d", p, k, latency, got, want)
				}
			}
		}
	}
}

// TestKindGoldens prints every kind's program and timeline; -update rewrites them.
func TestKindGoldens(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(kind.Name, func(t *testing.T) {
			chunks := chunksOf(kind.Name)[min(1, len(chunksOf(kind.Name))-1)]
			o := Options{Shape: Shape{Stages: 4 * chunks, Micros: 8}, Chunks: chunks, Costs: uniform(4, 1, 2, Hop{Transfer: 1, Latency: 1})}
			if kind.Name == "interleaved" {
				o.Forward, o.Backward = []int{5, 3}, []int{4, 4}
			}
			s := made(t)(kind.Make(o))
			line := simulate(t, s, uniform(o.Stages, 1, 2, Hop{}))
			text := fmt.Sprintf("%s\nmakespan %d, live %v\n%s", s, line.Makespan, line.PeakLive, line.Grid(1))
			compare(t, filepath.Join("testdata", "kinds", kind.Name+".txt"), text)
		})
	}
}

func TestOptionsRefuse(t *testing.T) {
	shape := Shape{Stages: 4, Micros: 4}
	for name, make := range map[string]func() (Schedule, error){
		"chunks 3 does not divide":  func() (Schedule, error) { return Grouped(Options{Shape: shape, Chunks: 3}) },
		"forward groups [3 2]":      func() (Schedule, error) { return Grouped(Options{Shape: shape, Forward: []int{3, 2}}) },
		"backward groups [4 0]":     func() (Schedule, error) { return Grouped(Options{Shape: shape, Backward: []int{4, 0}}) },
		"group is -1":               func() (Schedule, error) { return Grouped(Options{Shape: shape, Group: -1}) },
		"depth is -1":               func() (Schedule, error) { return Grouped(Options{Shape: shape, Depth: -1}) },
		"group is 0":                func() (Schedule, error) { return KFKB(shape, 0) },
		"group is -2":               func() (Schedule, error) { return TwoStage(shape, -2) },
		"segments is 0":             func() (Schedule, error) { return Segmented(shape, 0) },
		"chunks is 1":               func() (Schedule, error) { return Hanayo(Options{Shape: shape, Chunks: 1}) },
		"depth is -3":               func() (Schedule, error) { return Hanayo(Options{Shape: shape, Depth: -3}) },
		"3 pairs of pipelines":      func() (Schedule, error) { return Chimera(Options{Shape: shape, Pairs: 3}) },
		"micros is 1":               func() (Schedule, error) { return Chimera(Options{Shape: Shape{Stages: 2, Micros: 1}}) },
		"3 stages do not divide":    func() (Schedule, error) { return ZBV(Shape{Stages: 3, Micros: 1}) },
		"replica 0 with 0 stages":   func() (Schedule, error) { return VMin(Shape{Micros: 1}) },
		"micro-batches 0+0: stages": func() (Schedule, error) { return ZBH1(Shape{Stages: 1}) },
	} {
		want := strings.Replace(name, "chunks 3 does not divide", "4 stages do not divide by 3 chunks", 1)
		if _, err := make(); !errors.Is(err, ErrBadShape) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
