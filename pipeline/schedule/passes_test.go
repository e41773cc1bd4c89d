package schedule

import (
	"strings"
	"testing"
)

// TestPassesKeepEveryKindValid puts all passes on top of each other.
func TestPassesKeepEveryKindValid(t *testing.T) {
	for _, k := range Kinds() {
		o := Options{Shape: Shape{Stages: 8, Micros: 12}, Costs: uniform(8, 2, 4, Hop{1, 5})}
		s := made(t)(k.Make(o))
		early := func(_ Replica, st Stage) bool { return st < 3 }
		s = WithReduceAndStep(WithRecompute(WithCommunication(WithGather(s, early)), early))
		if err := Validate(s, Limits{}); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
		recomputed := 0
		for _, actions := range s.Workers {
			for _, a := range actions {
				if a.Op == Recompute {
					recomputed++
				}
			}
		}
		if want := 3 * 12 * max(s.Segments, 1); recomputed != want {
			t.Errorf("%s: %d recomputations, want %d", k.Name, recomputed, want)
		}
		if got := strings.Count(s.String(), "REDUCE"); got != 8*s.Replicas() {
			t.Errorf("%s: %d reductions", k.Name, got)
		}
	}
}

// TestRecomputeHidesInWaits has links on which a stage waits for gradients longer than it
// recomputes: the step takes as long as without.
func TestRecomputeHidesInWaits(t *testing.T) {
	costs := uniform(4, 2, 4, Hop{0, 6})
	for i := range costs.Stages {
		costs.Stages[i].Recompute = 2
	}
	timing := Timing{Replicas: []Costs{costs}}
	s := made(t)(Depth(Shape{Stages: 4, Micros: 16}, 1))
	plain, err := Makespan(s, timing)
	if err != nil {
		t.Fatal(err)
	}
	ahead := WithRecompute(s, func(_ Replica, st Stage) bool { return st < 2 })
	for name, form := range map[string]Schedule{"ahead": ahead, "received": WithRecompute(WithCommunication(s), func(_ Replica, st Stage) bool { return st < 2 })} {
		if got, err := Makespan(form, timing); err != nil || got != plain {
			t.Errorf("%s: %d with recomputation, %d without, %v", name, got, plain, err)
		}
	}
}

// TestGatherComesAheadOfAStage has it once for each stage that is told to, wherever its forwards
// are.
func TestGatherComesAheadOfAStage(t *testing.T) {
	list := made(t)(Parse("0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n1F0 1F1 1B0 1B1\n"))
	s := WithCommunication(WithGather(list, func(Replica, Stage) bool { return true }))
	const want = "0GATHER 0F0 0SA0 0F1 0SA1 2GATHER 2RA0 2F0 2RA1 2F1 2B0 2SG0 2B1 2SG1 0RG0 0B0 0RG1 0B1\n"
	if got := (Schedule{Workers: s.Workers[:1]}).String(); got != want {
		t.Errorf("%swant\n%s", got, want)
	}
	if one := WithGather(list, func(_ Replica, st Stage) bool { return st == 1 }).String(); strings.Count(one, "GATHER") != 1 || !strings.Contains(one, "1GATHER 1F0") {
		t.Errorf("stage 1 alone:\n%s", one)
	}
}

// TestRecomputeFreesMemory keeps inputs of a tenth, and the activations of the micro-batch
// that is computed.
func TestRecomputeFreesMemory(t *testing.T) {
	s := made(t)(Depth(Shape{Stages: 4, Micros: 8}, 1))
	limits := Limits{
		Bytes:    func(Replica, Stage) int64 { return 100 },
		Input:    func(Replica, Stage) int64 { return 10 },
		CapBytes: []int64{400, 300, 200, 100},
	}
	if err := Validate(s, limits); err != nil {
		t.Error(err)
	}
	limits.CapBytes = []int64{130, 120, 110, 100} // the inputs of those in flight but one, and that one
	if err := Validate(s, limits); err == nil {
		t.Error("everything fits without recomputation")
	}
	s = WithRecompute(s, func(Replica, Stage) bool { return true })
	if err := Validate(s, limits); err != nil {
		t.Error(err)
	}
	limits.CapBytes[0]--
	if err := Validate(s, limits); err == nil {
		t.Error("less than that fits")
	}
}
