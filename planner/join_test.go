package planner

import (
	"math/rand/v2"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// TestNoStepIsLongerForWhoJoins: members come one by one, and each plan takes no longer than the one in force would with today's
// links, whatever the schedule.
func TestNoStepIsLongerForWhoJoins(t *testing.T) {
	rng, joined := rand.New(rand.NewPCG(41, 42)), 0
	for range casesOf(16, 4) {
		in := randomInput(rng)
		in.Run.Train.Schedule = []string{"", plan.ScheduleName, splitKind}[rng.IntN(3)]
		all := in.Members
		for i := range all {
			all[i].Draining = false
			in.Members = all[:i+1]
			p, reasons, err := Make(t.Context(), in)
			if err != nil && in.Previous == nil {
				continue // the model does not fit yet
			}
			if err != nil {
				t.Fatal(err)
			}
			if in.Previous != nil {
				joined++
				now, err := predicted(in, *in.Previous)
				if err != nil {
					t.Fatal(err)
				}
				if over := slower(now.Step, schedule.Nanos(stepNanos(reasons))); over > 0 {
					t.Errorf("%d members: %s, %s longer than as before, %s", i+1, reasons.Lines()[0], plan.Permille(over), plan.Time(now.Step))
				}
			}
			in.Previous, in.Generation = &p, p.Generation+1
		}
	}
	if joined < 5 {
		t.Errorf("only %d members joined", joined)
	}
}
