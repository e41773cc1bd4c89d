package gather

import (
	"slices"
	"testing"

	"pnode/pipeline/wire"
	"pnode/planner/plan"
)

// TestLossesOfARound: each step's loss is the mean over the micro-batches that count, of the replicas that came so far.
func TestLossesOfARound(t *testing.T) {
	p := plan.Plan{Replicas: []plan.Pipeline{{Micros: 2}, {FirstMicro: 2, Micros: 4}, {FirstMicro: 6, Micros: 6}}}
	heldOut := 7.0
	o := Outcome{
		Merged:  plan.Merged{From: 8, To: 11, Parts: []plan.Part{{Steps: 2}, {Steps: 3}, {}}},
		Reports: []wire.OuterReport{{Losses: []float64{1, 2}, HeldOut: &heldOut}, {Losses: []float64{4, 5, 6}}, {Losses: []float64{100, 100, 100}}},
	}
	if got := o.Losses(p); !slices.Equal(got, []float64{3, 4, 6}) {
		t.Errorf("losses %v, want 3, 4 and 6", got)
	}
	if got, _ := o.HeldOut(); got != &heldOut {
		t.Errorf("held-out loss %v", got)
	}
	o.Parts[0].Steps = 0
	if got, _ := o.HeldOut(); got != nil || !slices.Equal(o.Losses(p), []float64{4, 5, 6}) {
		t.Errorf("without replica 0 losses %v, held-out loss %v", o.Losses(p), got)
	}
	o.Reports[1].Losses = nil
	if got := o.Losses(p); got != nil {
		t.Errorf("losses %v, those of a counted replica are not here", got)
	}
	o.Reports = nil
	if heldOut, _ := o.HeldOut(); heldOut != nil || o.Losses(p) != nil {
		t.Error("losses without a report")
	}
}
