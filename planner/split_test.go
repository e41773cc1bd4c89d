package planner

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// fewMicros are so many nodes with links of a latency and rate, in a run of one replica of a stage on each that asks for split backwards.
func fewMicros(t *testing.T, stages, micros int, rttNanos, bytesPerS int64) Input {
	t.Helper()
	in := lanedOf(t, splitKind, stages, 1<<40)
	in.Run.Train.Stages, in.Run.Train.Replicas, in.Run.Train.Micros = stages, 1, micros
	for i := range in.Members {
		for j := range in.Members[i].Profile.Links {
			in.Members[i].Profile.Links[j].RTTNanos, in.Members[i].Profile.Links[j].BytesPerS = rttNanos, bytesPerS
		}
	}
	return in
}

// TestSplitBackwardsFillWaits where links leave some, within memory, with the gain in the reasons, and as a plan that other nodes
// make the same programs of.
func TestSplitBackwardsFillWaits(t *testing.T) {
	in := fewMicros(t, 4, 4, 40e6, 125_000_000)
	p, reasons, err := Make(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, in, p, reasons)
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil || spec.Kind != splitKind || len(p.Replicas[0].Stages) != 4 {
		t.Fatalf("the plan is %s (%v)", p.Encode(), err)
	}
	for w, bytes := range allocated(t, in, p) {
		if free := memoryOf(t, in, p.Workers()[w]); bytes > free {
			t.Errorf("%v takes %d bytes of %d", p.Workers()[w], bytes, free)
		}
	}
	in.Run.Train.Schedule = plan.ScheduleName
	_, plainly, err := Make(t.Context(), in)
	if err != nil || stepNanos(plainly)*100 < stepNanos(reasons)*110 {
		t.Errorf("a step of %d ns, in 1f1b %d (%v)", stepNanos(reasons), stepNanos(plainly), err)
	}
	i := slices.IndexFunc(reasons, func(r plan.Reason) bool { return r.Kind == plan.ReasonOrders })
	if i < 0 || reasons[i].Nanos != stepNanos(plainly) || !strings.Contains(reasons[i].Text, "zb-elastic fills waits (no others end sooner)") {
		t.Errorf("no reason for a gain: %v", reasons)
	}
	p.Schedule = strings.Replace(p.Schedule, "FI", "IF", 1) // whoever says so
	if _, err := p.Programs(); !errors.Is(err, plan.ErrBadPlan) {
		t.Errorf("a plan whose orders cannot be: %v", err)
	}
}

// TestReselectChangesOrders has the link between two of four nodes get slow: a commit changes to orders that suit it.
func TestReselectChangesOrders(t *testing.T) {
	in := fewMicros(t, 4, 8, 60e6, 125_000_000)
	p, _, err := Make(t.Context(), in)
	if err != nil || !strings.HasPrefix(p.Schedule, splitKind) {
		t.Fatalf("%s: %v", p.Schedule, err)
	}
	in.Previous, in.Generation, in.Start = &p, 2, 17
	links := slowMiddle(p)
	for i := range links {
		links[i].BytesPerS, links[i].RTTNanos = 125_000_000, 600e6
	}
	r, err := Reselect(in, p, measured(t, in, p, links))
	if err != nil {
		t.Fatal(err)
	}
	if !r.InPlace || r.Plan.Schedule == p.Schedule || r.Then >= r.Now || len(r.Why) > 512 || strings.Contains(r.Why, "FIW") {
		t.Errorf("%s: %s instead of %s, in place %v", r.Why, r.Plan.Schedule, p.Schedule, r.InPlace)
	}
	if _, err := r.Plan.Programs(); err != nil {
		t.Error(err)
	}
}
