package planner

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// tight is a run on devices whose memory makes them recompute, over links with latency. Some
// compute faster than others.
func tight(t *testing.T, rng *rand.Rand, text string) Input {
	t.Helper()
	nodes := 2 + 2*rng.IntN(2)
	in := lanedOf(t, text, nodes, 1<<40)
	roomy, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	most, least := slices.Max(allocated(t, in, roomy)), slices.Max(allocated(t, in, lean(roomy)))
	for i := range in.Members {
		profile := &in.Members[i].Profile
		profile.Devices[0].MemoryFreeBytes = least + (most-least)*int64(20+rng.IntN(70))/100
		profile.Devices[0].MatMulFLOPS *= int64(1 + rng.IntN(3))
		for l := range profile.Links {
			profile.Links[l].RTTNanos = int64(rng.IntN(80)) * 1e6
		}
	}
	return in
}

// insideBackward is a plan with nothing computed again ahead of a gradient.
func insideBackward(p plan.Plan) plan.Plan {
	p.Replicas = slices.Clone(p.Replicas)
	for r := range p.Replicas {
		p.Replicas[r].Stages = slices.Clone(p.Replicas[r].Stages)
		for s := range p.Replicas[r].Stages {
			p.Replicas[r].Stages[s].Ahead = 0
		}
	}
	return p
}

func aheadOf(p plan.Plan) (layers int) {
	for _, pipe := range p.Replicas {
		for _, place := range pipe.Stages {
			layers += place.Ahead
		}
	}
	return layers
}

// TestPredictionIsThatOfThePrograms: what is promised is what the simulator says of the very
// programs that the workers run, under every kind of schedule, with recomputation ahead of
// gradients as an action of its own; inside the backward pass the plan would never be faster.
func TestPredictionIsThatOfThePrograms(t *testing.T) {
	rng := rand.New(rand.NewPCG(71, 72))
	ahead, shorter := map[string]int{}, 0
	for _, text := range append(slices.Clone(kinds), slices.Repeat([]string{"1f1b"}, 6)...) {
		for range casesOf(3, 1) {
			in := tight(t, rng, text)
			if rng.IntN(3) == 0 {
				in.Run.Train.Recompute = plan.Recompute(dropping[rng.IntN(2)])
			}
			s, best, _, err := decide(t.Context(), in)
			if err != nil {
				continue // devices of unlike speed may get too much
			}
			plan, err := s.write(best)
			if err != nil {
				t.Fatal(err)
			}
			if n := aheadOf(plan); n > 0 {
				ahead[text]++
			}
			checkPrograms(t, in, best, plan)
			for i, need := range allocated(t, in, plan) {
				if free := memoryOf(t, in, plan.Workers()[i]); need > free {
					t.Errorf("%s: %d bytes of %d", text, need, free)
				}
			}
			before, err := predicted(in, insideBackward(plan))
			if err != nil || before.Step < best.step() {
				t.Errorf("%s: %d ahead of gradients, %d inside the backward, %v", text, best.step(), before.Step, err)
			}
			if before.Step > best.step() {
				shorter++
			}
		}
	}
	t.Logf("ahead of gradients: %v, %d steps are the shorter for it", ahead, shorter)
	if len(ahead) < len(kinds)*casesOf(4, 2)/6 || shorter < casesOf(10, 3) {
		t.Errorf("ahead of gradients: %v, %d steps are the shorter for it", ahead, shorter)
	}
}

// dropping are the levels that drop something.
var dropping = []model.Recompute{model.RecomputeOutputs, model.RecomputeBlock}

// checkPrograms compares a candidate's promise with its plan's programs under its costs.
func checkPrograms(t *testing.T, in Input, k *candidate, plan plan.Plan) {
	t.Helper()
	list, err := plan.Programs()
	if err != nil {
		t.Fatal(err)
	}
	var timing schedule.Timing
	var promised schedule.Nanos
	if timing = k.model.Timing(k.layout.Rows, k.layout.Codecs); k.programmed() {
		promised = k.layout.End
	} else {
		promised = slices.Max(k.result.Pipelines)
	}
	got, err := schedule.Makespan(list, timing)
	if err != nil || got != promised {
		t.Errorf("%s: promised %d, the programs take %d, %v", plan.Schedule, promised, got, err)
	}
	given, err := Timing(in, plan, Measured{})
	for _, costs := range given.Replicas {
		for s := range costs.Stages {
			costs.Stages[s].Update = 0
		}
	}
	if err == nil {
		got, err = schedule.Makespan(list, given)
	}
	if err != nil || got != promised {
		t.Errorf("%s: promised %d, with the plan's timing the programs take %d, %v", plan.Schedule, promised, got, err)
	}
	again, err := predicted(in, plan)
	if err != nil || again.Step != k.step() {
		t.Errorf("%s: promised a step of %d, predicted from the plan %d, %v", plan.Schedule, k.step(), again.Step, err)
	}
}
