package schedule

import (
	"strings"
	"testing"
)

func TestSplitAndMergeBackward(t *testing.T) {
	for name, tc := range map[string]struct{ whole, split string }{
		"plain":    {"0F0 0B0 0F1 0B1\n", "0F0 0I0 0W0 0F1 0I1 0W1\n"},
		"messages": {"0F0 0SA0 0RG0 0B0\n1RA0 1F0 1B0 1SG0\n", "0F0 0SA0 0RG0 0I0 0W0\n1RA0 1F0 1I0 1W0 1SG0\n"},
	} {
		s, err := Parse(tc.whole)
		if err != nil {
			t.Fatal(err)
		}
		split := SplitBackward(s)
		if split.String() != tc.split {
			t.Errorf("%s splits into\n%s", name, split)
		}
		if again := MergeBackward(split); again.String() != tc.whole {
			t.Errorf("%s merges into\n%s", name, again)
		}
	}
	delayed := "0F0 0F1 0I0 0I1 0W0 0W1\n"
	s, _ := Parse(delayed)
	if got := MergeBackward(s).String(); got != delayed {
		t.Errorf("a delayed weight gradient is merged: %s", got)
	}
	sent, _ := Parse("0F0 0SA0 0RG0 0B0\n1RA0 1F0 1I0 1SG0 1W0\n")
	if got := MergeBackward(sent).String(); got != "0F0 0SA0 0RG0 0B0\n1RA0 1F0 1B0 1SG0\n" {
		t.Errorf("a weight gradient behind a send gives %s", got)
	}
}

// TestPassesKeepEveryKindValid puts all passes on top of each other.
func TestPassesKeepEveryKindValid(t *testing.T) {
	for _, k := range Kinds() {
		o := Options{Shape: Shape{Stages: 8, Micros: 12}, Costs: uniform(8, 2, 4, Hop{1, 5})}
		costs := uniform(8, 2, 4, Hop{1, 5})
		for i := range costs.Stages {
			costs.Stages[i].Recompute, costs.Stages[i].Reduce = 2, 3
		}
		s := made(t)(k.Make(o))
		timing := Timing{}
		for range s.Replicas() {
			timing.Replicas = append(timing.Replicas, costs)
		}
		early := func(_ Replica, st Stage) bool { return st < 3 }
		s = WithCommunication(WithRecompute(SplitBackward(s), early))
		s = made(t)(RecomputeInWaits(s, timing))
		s = made(t)(ReduceInWaits(s, timing))
		s = WithReduceAndStep(WithGather(s))
		if err := Validate(s, Limits{}); err != nil {
			t.Errorf("%s: %v", k.Name, err)
		}
		if err := Validate(MergeBackward(s), Limits{}); err != nil {
			t.Errorf("%s merged: %v", k.Name, err)
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

// TestRecomputeMovesIntoAWait has a backward that finds its gradient there, behind a
// forward that waits for its input.
func TestRecomputeMovesIntoAWait(t *testing.T) {
	s, err := Parse("0F0 0F1 0B0 0B1\n1F0 1F1 1R0 1B0 1R1 1B1\n2F0 2B0 2F1 2B1\n")
	if err != nil {
		t.Fatal(err)
	}
	costs := split(3, 10, 10, 10)
	costs.Stages[0].Forward, costs.Stages[1].Recompute, costs.Stages[2].Forward = 100, 10, 1
	moved := made(t)(RecomputeInWaits(s, Timing{Replicas: []Costs{costs}}))
	if got := (Schedule{Workers: moved.Workers[1:2]}).String(); got != "1F0 1R0 1F1 1B0 1R1 1B1\n" {
		t.Errorf("moved: %s", got)
	}
}

func parsed(t *testing.T, line string) []Action {
	t.Helper()
	actions, err := parseLine(line)
	if err != nil {
		t.Fatal(err)
	}
	return actions
}

func TestReduceInWaits(t *testing.T) {
	s := made(t)(Chimera(Options{Shape: Shape{Stages: 4, Micros: 4}}))
	costs := uniform(4, 1, 2, Hop{})
	timing := Timing{Replicas: []Costs{costs, costs}}
	placed := made(t)(ReduceInWaits(s, timing))
	const want = "0F0 0F1 r1/3F2 r1/3B2 r1/3F3 r1/3B3 r1/3REDUCE 0B0 0B1 0REDUCE\n"
	if got := (Schedule{Workers: placed.Workers[:1]}).String(); got != want {
		t.Errorf("%swant\n%s", got, want)
	}
}

// TestGatherComesAheadOfAStage has it once for each stage, wherever its forwards are.
func TestGatherComesAheadOfAStage(t *testing.T) {
	s := WithCommunication(WithGather(made(t)(Parse("0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\n1F0 1F1 1B0 1B1\n"))))
	const want = "0GATHER 0F0 0SA0 0F1 0SA1 2GATHER 2RA0 2F0 2RA1 2F1 2B0 2SG0 2B1 2SG1 0RG0 0B0 0RG1 0B1\n"
	if got := (Schedule{Workers: s.Workers[:1]}).String(); got != want {
		t.Errorf("%swant\n%s", got, want)
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
