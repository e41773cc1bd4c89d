package schedule

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// lower applies the passes that every schedule gets.
func lower(s Schedule) Schedule { return WithReduceAndStep(WithCommunication(s)) }

// TestEverySmallScheduleValidates also meets the formulas of makespan and memory.
func TestEverySmallScheduleValidates(t *testing.T) {
	for p := 1; p <= 8; p++ {
		for n := 1; n <= 32; n++ {
			shape := Shape{Stages: p, Micros: n, Replica: 2, FirstMicro: 5}
			gpipe, err := GPipe(shape)
			if err != nil {
				t.Fatal(err)
			}
			check(t, fmt.Sprintf("GPipe p=%d n=%d", p, n), gpipe, shape, slices.Repeat([]int{n}, p))
			for d := 1; d <= 3; d++ {
				s, err := Depth(shape, d)
				if err != nil {
					t.Fatal(err)
				}
				live := DepthWarmups(p, d)
				for r := range live {
					live[r] = min(live[r]+1, n)
				}
				check(t, fmt.Sprintf("1F1B p=%d n=%d d=%d", p, n, d), s, shape, live)
			}
		}
	}
}

// check wants a valid schedule with the makespan (N+p-1)(f+b) of links that cost
// nothing, and exactly the given activations live.
func check(t *testing.T, name string, s Schedule, shape Shape, live []int) {
	t.Helper()
	s = relabel(s, 0)
	caps := make([]int64, len(live))
	for r := range live {
		caps[r] = int64(live[r]) * 10
	}
	limits := Limits{Bytes: func(Replica, Stage) int64 { return 10 }, CapBytes: caps}
	for _, form := range []Schedule{s, WithCommunication(s), lower(s)} {
		if err := Validate(form, limits); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		line, err := Simulate(form, Timing{Replicas: []Costs{uniform(shape.Stages, 2, 4, Hop{})}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := Nanos(shape.Micros+shape.Stages-1) * 6; line.Makespan != want {
			t.Fatalf("%s: makespan %d, want %d", name, line.Makespan, want)
		}
		if !slices.Equal(line.PeakLive, live) {
			t.Fatalf("%s: %v activations live, want %v", name, line.PeakLive, live)
		}
		if again, err := Parse(form.String()); err != nil || again.String() != form.String() {
			t.Fatalf("%s: %v after its text form", name, err)
		}
	}
	caps[0]--
	if err := Validate(s, limits); !errors.Is(err, ErrInvalid) {
		t.Fatalf("%s: fits in too little memory: %v", name, err)
	}
}

// relabel returns all actions another replica.
func relabel(s Schedule, r Replica) Schedule {
	out := Schedule{Workers: make([][]Action, len(s.Workers)), Segments: s.Segments}
	for w, actions := range s.Workers {
		out.Workers[w] = slices.Clone(actions)
		for i := range actions {
			out.Workers[w][i].Replica = r
		}
	}
	return out
}

func TestGeneratorsRefuse(t *testing.T) {
	for name, make := range map[string]func() (Schedule, error){
		"no stages":            func() (Schedule, error) { return GPipe(Shape{Micros: 1}) },
		"negative stages":      func() (Schedule, error) { return Depth(Shape{Stages: -1, Micros: 1}, 1) },
		"no micro-batches":     func() (Schedule, error) { return GPipe(Shape{Stages: 1}) },
		"too many":             func() (Schedule, error) { return GPipe(Shape{Stages: 1, Micros: MaxNumber + 1}) },
		"depth 0":              func() (Schedule, error) { return Depth(Shape{Stages: 1, Micros: 1}, 0) },
		"number of warm-ups":   func() (Schedule, error) { return Warmups(Shape{Stages: 2, Micros: 1}, []int{0}) },
		"negative warm-up":     func() (Schedule, error) { return Warmups(Shape{Stages: 1, Micros: 1}, []int{-1}) },
		"warm-ups that rise":   func() (Schedule, error) { return Warmups(Shape{Stages: 3, Micros: 9}, []int{1, 2, 0}) },
		"negative micro-batch": func() (Schedule, error) { return GPipe(Shape{Stages: 1, Micros: 1, FirstMicro: -1}) },
	} {
		if s, err := make(); !errors.Is(err, ErrBadShape) {
			t.Errorf("%s: %v, %v", name, s, err)
		}
	}
}

// TestGolden prints programs and timelines; -update rewrites them.
func TestGolden(t *testing.T) {
	must := func(s Schedule, err error) Schedule {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	hop := golden()
	for name, tc := range map[string]struct {
		s      Schedule
		timing []Costs
	}{
		"gpipe":    {must(GPipe(Shape{Stages: 4, Micros: 4})), []Costs{uniform(4, 1, 2, Hop{})}},
		"1f1b":     {must(Depth(Shape{Stages: 4, Micros: 6}, 1)), []Costs{uniform(4, 1, 2, Hop{})}},
		"depth2":   {must(Depth(Shape{Stages: 3, Micros: 8}, 2)), []Costs{uniform(3, 1, 2, Hop{1, 1})}},
		"minimal":  {must(Warmups(Shape{Stages: 4, Micros: 12}, []int{7, 6, 1, 0})), []Costs{hop}},
		"replicas": {Join(must(Depth(Shape{Stages: 2, Micros: 4}, 1)), must(Depth(Shape{Stages: 2, Micros: 2, Replica: 1, FirstMicro: 4}, 1))), []Costs{costly(2, 1), costly(2, 2)}},
	} {
		t.Run(name, func(t *testing.T) {
			s := lower(tc.s)
			if err := Validate(s, Limits{}); err != nil {
				t.Fatal(err)
			}
			line, err := Simulate(s, Timing{Replicas: tc.timing})
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			fmt.Fprintf(&b, "%s\nmakespan %d\n%s", s, line.Makespan, line.Grid(1))
			for w := range line.Workers {
				fmt.Fprintf(&b, "worker %d: idle %d, at most %d live\n", w, line.Idle(w), line.PeakLive[w])
			}
			compare(t, filepath.Join("testdata", name+".txt"), b.String())
		})
	}
}

// costly has reductions and updates as well.
func costly(p int, f Nanos) Costs {
	c := uniform(p, f, 2*f, Hop{1, 1})
	for i := range c.Stages {
		c.Stages[i].Reduce, c.Stages[i].Update = 2, 1
	}
	return c
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != strings.ReplaceAll(string(want), "\r\n", "\n") {
		t.Errorf("%s differs (rewrite with -update):\n%s", path, got)
	}
}
