package planner

import (
	"math/rand/v2"
	"testing"

	"pnode/planner/optimum"
	"pnode/planner/plan"
)

// TestFloorIsBelowSteps: no simulated step of a pipeline in 1F1B is shorter than its bounds, with its own cut or with any.
func TestFloorIsBelowSteps(t *testing.T) {
	rng, steps := rand.New(rand.NewPCG(61, 62)), 0
	for i := range 20 {
		in := randomInput(rng)
		in.Run.Train.Schedule = plan.ScheduleName
		s, err := searchIn(in)
		if err != nil {
			t.Fatal(err)
		}
		found, err := s.run(t.Context())
		if err != nil {
			continue // it does not fit
		}
		least := optimum.NewFloor(s.planned(s.roomy()))
		for _, k := range found {
			if len(k.pipes) > 1 || !k.simulated {
				continue
			}
			steps++
			for _, ends := range [][]int{k.pipes[0].ends, nil} {
				if bound := least.Step(k.pipes[0].devices, ends); bound > k.step() {
					t.Errorf("input %d: %v with layers up to %v take %d ns, the bound is %d", i, k.pipes[0].devices, ends, k.step(), bound)
				}
			}
		}
	}
	if steps < 50 {
		t.Errorf("%d steps are compared only", steps)
	}
}
