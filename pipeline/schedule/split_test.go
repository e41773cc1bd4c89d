package schedule

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

var splitCells = flag.Int("splits", 12, "random pipelines of each size whose split backwards are compared with brute force")

// splitCell is a random pipeline in small integers: uneven stages, links of up to two stage times, and no caps, those of
// 1F1B or one more, or any.
func splitCell(r *rand.Rand, stages, micros int) Split {
	between := func(a, b int) Nanos { return Nanos(a + r.IntN(b-a+1)) }
	p := Split{Micros: micros, Width: usualWidth}
	caps, recompute := r.IntN(3), r.IntN(6)/5
	for s := range stages {
		f := between(1, 6)
		p.Costs.Stages = append(p.Costs.Stages, StageTime{Forward: f, Input: max(1, f+between(-1, 1)), Weight: max(1, f+between(-1, 1)), Recompute: between(0, 2*recompute)})
		switch caps {
		case 1:
			p.Caps = append(p.Caps, min(micros, stages-s+r.IntN(2)))
		case 2:
			p.Caps = append(p.Caps, 1+r.IntN(micros))
		}
		if s > 0 {
			hop := func() Hop { return Hop{Transfer: between(0, 3), Latency: between(0, 12)} }
			p.Costs.Boundaries = append(p.Costs.Boundaries, Boundary{Activation: hop(), Gradient: hop()})
		}
	}
	return p
}

func (p Split) String() string { return fmt.Sprintf("%+v of %d within %v", p.Costs, p.Micros, p.Caps) }

// simulateOrders is the makespan of orders by the real engine, with recomputation as actions of its own.
func (p Split) simulateOrders(orders []StageOrder) (Nanos, error) {
	s, err := Ordered(Shape{Stages: len(orders), Micros: p.Micros}, orders)
	if err != nil {
		return 0, err
	}
	s = WithRecompute(s, func(_ Replica, st Stage) bool { return p.Costs.Stages[st].Recompute > 0 })
	return Makespan(WithCommunication(s), Timing{Replicas: []Costs{p.Costs}})
}

// checkOrders fails unless a result is what the engine and the validator say of it.
func checkOrders(t *testing.T, p Split, got Orders) {
	t.Helper()
	end, err := p.simulateOrders(got.Stages)
	if err != nil || end != got.Makespan || end < p.Bound() {
		t.Fatalf("%v: %v ends at %d by the engine (%v), bound %d", p, got, end, err, p.Bound())
	}
	s, _ := Ordered(Shape{Stages: len(got.Stages), Micros: p.Micros}, got.Stages)
	limits := Limits{}
	for r, peak := range got.Peak {
		if p.Caps != nil && peak > p.Caps[r] {
			t.Fatalf("%v: %v keeps more than the caps", p, got)
		}
		limits.CapBytes = append(limits.CapBytes, int64(peak))
	}
	if err := Validate(s, limits); err != nil {
		t.Fatalf("%v: %v", p, err)
	}
}

// stageOrders are all orders of a stage within a cap.
func stageOrders(micros, limit int) (all []StageOrder) {
	var extend func(order []byte, f, i, w int)
	extend = func(order []byte, f, i, w int) {
		if w == micros {
			all = append(all, StageOrder(order))
			return
		}
		if f < micros && f-w < limit {
			extend(append(order, 'F'), f+1, i, w)
		}
		if i < f {
			extend(append(order, 'I'), f, i+1, w)
		}
		if w < i {
			extend(append(order, 'W'), f, i, w+1)
		}
	}
	extend(nil, 0, 0, 0)
	return all
}

// TestSplitAgainstEveryOrder runs every combination of orders through the engine.
func TestSplitAgainstEveryOrder(t *testing.T) {
	for _, size := range []struct{ stages, micros, cells int }{{2, 3, 8}, {3, 2, 8}, {3, 3, 1}} {
		for cell := range size.cells {
			p := splitCell(rand.New(rand.NewPCG(uint64(size.stages*10+size.micros), uint64(cell))), size.stages, size.micros)
			got, err := p.Choose()
			if err != nil {
				t.Fatal(err)
			}
			checkOrders(t, p, got)
			least := Nanos(math.MaxInt64)
			orders := make([]StageOrder, size.stages)
			var each func(stage int)
			each = func(stage int) {
				if stage == size.stages {
					if end, err := p.simulateOrders(orders); err == nil {
						least = min(least, end)
					}
					return
				}
				limit := size.micros
				if p.Caps != nil {
					limit = p.Caps[stage]
				}
				for _, orders[stage] = range stageOrders(size.micros, limit) {
					each(stage + 1)
				}
			}
			each(0)
			if !got.Proven || got.Makespan != least {
				t.Errorf("%v: %+v, the least of all is %d", p, got, least)
			}
		}
	}
}

// anyOrder looks for orders that end before a time: of each step under way it tries every pass of every stage that can
// begin, and drops only what ends too late by a stage's own work, or is nowhere earlier than one with the same
// counts. It knows nothing of active orders.
type anyOrder struct {
	p     Split
	below Nanos
	seen  map[string][]*splitRun
}

func (a *anyOrder) exists(r *splitRun) bool {
	done := true
	for s, t := range a.p.Costs.Stages {
		left := Nanos(a.p.Micros-r.forwards[s])*t.Forward + Nanos(a.p.Micros-r.inputs[s])*(t.Recompute+t.Input) + Nanos(a.p.Micros-r.weights[s])*t.Weight
		if r.restored[s] {
			left -= t.Recompute
		}
		if r.free[s]+left >= a.below {
			return false
		}
		done = done && left == 0
	}
	if done {
		return true
	}
	key := fmt.Sprint(r.counts, r.restored)
	if slices.ContainsFunc(a.seen[key], func(o *splitRun) bool { return o.dominates(r) }) {
		return false
	}
	a.seen[key] = append(a.seen[key], r)
	for s := range r.free {
		for _, n := range r.ready(a.p, s, nil) {
			child := newSplitRun(a.p)
			child.follows(r)
			child.begin(a.p, s, n)
			if a.exists(child) {
				return true
			}
		}
	}
	return false
}

// TestSplitAgainstBruteForce has no order of three stages and four micro-batches, or of four and three, end sooner.
func TestSplitAgainstBruteForce(t *testing.T) {
	for _, size := range []struct{ stages, micros int }{{3, 4}, {4, 3}} {
		proven := 0
		for cell := range *splitCells {
			p := splitCell(rand.New(rand.NewPCG(7, uint64(cell))), size.stages, size.micros)
			got, err := p.Choose()
			if err != nil {
				t.Fatal(err)
			}
			checkOrders(t, p, got)
			if sooner := (&anyOrder{p, got.Makespan, map[string][]*splitRun{}}); sooner.exists(newSplitRun(p)) {
				t.Errorf("%v: something ends sooner than %+v", p, got)
			}
			if again := (&anyOrder{p, got.Makespan + 1, map[string][]*splitRun{}}); !again.exists(newSplitRun(p)) {
				t.Errorf("%v: brute force finds nothing as soon as %+v", p, got)
			}
			if got.Proven {
				proven++
			}
		}
		t.Logf("%d stages, %d micro-batches: equal to brute force in %d cells, %d of them proven by the search itself", size.stages, size.micros, *splitCells, proven)
	}
}

// TestSplitIsNearWiderSearches compares with one that is 16 times as wide, where brute force takes too long.
func TestSplitIsNearWiderSearches(t *testing.T) {
	for _, size := range []struct{ stages, micros int }{{2, 8}, {4, 4}, {4, 8}, {4, 16}} {
		equal, worst, cells := 0, Nanos(0), max(4, *splitCells/3)
		for cell := range cells {
			p := splitCell(rand.New(rand.NewPCG(11, uint64(cell))), size.stages, size.micros)
			got, _ := p.quickest(new(unusedRuns))
			p.Width *= 16
			wide, ok := p.quickest(new(unusedRuns))
			if !ok || wide.Makespan > got.Makespan {
				t.Fatalf("%v: %+v in a wide search, %+v in a narrow one", p, wide, got)
			}
			checkOrders(t, p, got)
			per := (got.Makespan - wide.Makespan) * 1000 / wide.Makespan
			if worst = max(worst, per); per == 0 {
				equal++
			}
		}
		if worst > 120 {
			t.Errorf("%d stages, %d micro-batches: %d per mille longer than a wide search", size.stages, size.micros, worst)
		}
		t.Logf("%d stages, %d micro-batches: equal in %d of %d, at most %d per mille longer", size.stages, size.micros, equal, cells, worst)
	}
}

// TestSplitIsNoSlowerThanItsFamily compares with every kind that has one stage a worker, within the memory that it takes.
func TestSplitIsNoSlowerThanItsFamily(t *testing.T) {
	shorter := 0
	for cell := range max(8, *splitCells) {
		r := rand.New(rand.NewPCG(13, uint64(cell)))
		p := splitCell(r, 2+r.IntN(3), 2+r.IntN(10))
		p.Caps = nil
		o := Options{Shape: Shape{Stages: len(p.Costs.Stages), Micros: p.Micros}, Costs: p.Costs}
		for _, k := range Kinds() {
			if k.StagesPerWorker(o) > 1 || k.Replicas(o) > 1 || k.Segments(o) > 1 || k.Name == "zb-elastic" {
				continue
			}
			s, err := k.Make(o)
			if err != nil {
				t.Fatal(err)
			}
			s = WithCommunication(WithRecompute(s, func(_ Replica, st Stage) bool { return p.Costs.Stages[st].Recompute > 0 }))
			line, err := Simulate(s, Timing{Replicas: []Costs{p.Costs}})
			if err != nil {
				t.Fatal(err)
			}
			kept := Split{Costs: p.Costs, Micros: p.Micros, Width: p.Width}
			for _, actions := range s.Workers {
				kept.Caps = append(kept.Caps, int(Limits{}.peak(withoutRecompute(actions))))
			}
			got, err := kept.Choose()
			if err != nil || got.Makespan > line.Makespan {
				t.Errorf("%v: %+v (%v), %s takes %d", kept, got, err, k.Name, line.Makespan)
			}
			if got.Makespan < line.Makespan {
				shorter++
			}
		}
	}
	if shorter == 0 {
		t.Error("no kind is slower in any cell")
	}
}

// withoutRecompute is a program in which activations are kept from the forward on.
func withoutRecompute(actions []Action) []Action {
	return slices.DeleteFunc(slices.Clone(actions), func(a Action) bool { return a.Op == Recompute })
}

// TestSplitOfEqualTimesHasNoBubble but the way of the first micro-batch to the last stage and back of the last gradient:
// the zero bubble of ZB-H2, in less memory.
func TestSplitOfEqualTimesHasNoBubble(t *testing.T) {
	for stages := 2; stages <= 4; stages++ {
		for _, micros := range []int{2 * stages, 4 * stages} {
			s, err := ZBElastic(Options{Shape: Shape{Stages: stages, Micros: micros}})
			if err != nil {
				t.Fatal(err)
			}
			line := simulate(t, s, split(stages, 1, 1, 1))
			if want := Nanos(3*micros + stages - 1); line.Makespan != want || slices.Max(line.PeakLive) > 2*stages-1 {
				t.Errorf("%d stages, %d micro-batches: ends at %d, want %d; keeps %v, want at most %d", stages, micros, line.Makespan, want, line.PeakLive, 2*stages-1)
			}
		}
	}
}

func TestOrdersAreChecked(t *testing.T) {
	shape := Shape{Stages: 2, Micros: 2}
	for _, orders := range [][]StageOrder{
		{"FFIIWW"}, {"FFIIWW", "FIWFI"}, {"FFIIWW", "FIWFIWFIW"}, {"FFIIWW", "IFWFIW"}, {"FFIIWW", "FWIFIW"}, {"FFIIWW", "FIWFIB"}, {"", ""},
	} {
		if s, err := Ordered(shape, orders); !errors.Is(err, ErrBadShape) {
			t.Errorf("%q: %v, %v", orders, s, err)
		}
	}
	text := "zb-elastic:order=FFIWIW+FIWFIW"
	spec, err := ParseSpec(text)
	if err != nil || spec.String() != text {
		t.Fatalf("%+v, %v", spec, err)
	}
	s, err := spec.Build(Group{Stages: 2, Shares: []Share{{First: 4, Micros: 2}}})
	if want := "0F4 0F5 0I4 0W4 0I5 0W5\n1F4 1I4 1W4 1F5 1I5 1W5\n"; err != nil || s.String() != want {
		t.Errorf("%v, %v", s, err)
	}
	for _, bad := range []string{"zb-elastic:order=", "zb-elastic:order=FIW+", "zb-elastic:order=3", "zb-elastic:order=fiw", "zb-h1:order=FIW"} {
		if s, err := ParseSpec(bad); !errors.Is(err, ErrBadSpec) {
			t.Errorf("%q parses as %+v, %v", bad, s, err)
		}
	}
	for _, p := range []Split{
		{Micros: 2, Width: 1},
		{Costs: split(2, 1, 1, 1), Width: 1},
		{Costs: split(2, 1, 1, 1), Micros: MaxOrdered, Width: 1},
		{Costs: split(2, 1, 1, 1), Micros: 2, Caps: []int{1, 0}, Width: 1},
		{Costs: split(2, 1, 1, 1), Micros: 2, Most: 6, Width: 1},
	} {
		if got, err := p.Choose(); !errors.Is(err, ErrBadShape) && !errors.Is(err, ErrBadCosts) {
			t.Errorf("%v: %+v, %v", p, got, err)
		}
	}
}

// BenchmarkSplit is one look for orders on four stages.
func BenchmarkSplit(b *testing.B) {
	for _, micros := range []int{4, 16} {
		b.Run(fmt.Sprint(micros), func(b *testing.B) {
			p := splitCell(rand.New(rand.NewPCG(1, 1)), 4, micros)
			for b.Loop() {
				if _, err := p.Choose(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
