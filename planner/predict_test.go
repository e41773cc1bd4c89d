package planner

import (
	"errors"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// TestTimingTakesMeasuredTimes of stages and links in place of modelled ones, per segment where
// sequences are cut.
func TestTimingTakesMeasuredTimes(t *testing.T) {
	for _, text := range []string{"1f1b", "zb-h1", "seq1f1b"} {
		in := lanedOf(t, text, 4, 1<<40)
		p, _, err := Make(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		list, err := p.Programs()
		if err != nil {
			t.Fatal(err)
		}
		segments := schedule.Nanos(max(1, list.Segments))
		micros := schedule.Nanos(p.Replicas[0].Micros)
		seen := Measured{
			Stages: []MeasuredStage{{Stage: 1, ForwardNanos: int64(micros * 8e6), BackwardNanos: int64(micros * 20e6), UpdateNanos: 5e6}, {Stage: 2, UpdateNanos: 7}, {Stage: 99, ForwardNanos: 1, BackwardNanos: 1}, {Replica: -1, ForwardNanos: 1, BackwardNanos: 1}},
			Links:  []MeasuredLink{{From: p.Replicas[0].Stages[0].Peer, To: p.Replicas[0].Stages[1].Peer, BytesPerS: 1e5, RTTNanos: 2e6}},
		}
		plain, err := Timing(in, p, Measured{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := Timing(in, p, seen)
		if err != nil {
			t.Fatal(err)
		}
		one, before := got.Replicas[0].Stages[1], plain.Replicas[0].Stages[1]
		if backward := one.Input + one.Weight + one.Recompute; one.Forward != 8e6/segments || backward < 20e6/segments || backward > 20e6/segments+3 || one.Update != 5e6 {
			t.Errorf("%s: a stage that was measured takes %+v", text, one)
		}
		if before.Weight*one.Input > one.Weight*before.Input*101/100 || one.Weight*before.Input > before.Weight*one.Input*101/100 {
			t.Errorf("%s: a measured backward is parted as %+v, the model parts it as %+v", text, one, before)
		}
		if got.Replicas[0].Stages[2] != plain.Replicas[0].Stages[2] {
			t.Errorf("%s: a stage whose passes nobody measured takes %+v", text, got.Replicas[0].Stages[2])
		}
		if hop, was := got.Replicas[0].Boundaries[0].Activation, plain.Replicas[0].Boundaries[0].Activation; hop.Latency != 1e6 || hop.Transfer < 90*was.Transfer {
			t.Errorf("%s: a message over a link that became slow takes %+v, before %+v", text, hop, was)
		}
	}
	if _, err := Timing(lanedOf(t, "1f1b", 2, 1<<40), plan.Plan{Generation: 1}, Measured{}); err == nil {
		t.Error("a plan without replicas has times")
	}
}

// TestPredictNamesWhatIsNotThere: people know machines by their names, not by keys.
func TestPredictNamesWhatIsNotThere(t *testing.T) {
	in := lanedOf(t, "1f1b", 2, 1<<40)
	in.Members[0].Name = "old-laptop"
	p, _, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	in.Members[0].Profile.Devices = nil
	if _, err := predicted(in, p); !errors.Is(err, plan.ErrBadPlan) || !strings.Contains(err.Error(), "of old-laptop is not there") {
		t.Error(err)
	}
}

// predicted times a step of a plan with the input's costs and profiles.
func predicted(in Input, p plan.Plan) (sim.Result, error) {
	s, err := searchFor(in, p)
	if err != nil {
		return sim.Result{}, err
	}
	return s.predict(p)
}
