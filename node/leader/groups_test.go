package leader

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pnode/pipeline/link"
	"pnode/planner/plan"
)

// slowed trains with a schedule and has the middle link become slow at the end of a step; 0 is never.
func slowed(t *testing.T, run plan.RunSpec, name string, after plan.Step, slow link.LinkConditions) (r *rehearsal, plans []plan.Plan) {
	run.Train.Schedule = name
	synctest.Test(t, func(t *testing.T) {
		r = newRehearsal(t, run)
		plans = r.train(func(step plan.Step) {
			if step != after || after == 0 {
				return
			}
			seats := r.state.Plan.Workers()
			r.net.SetConditions(seats[1].Peer, seats[2].Peer, slow)
			r.net.SetConditions(seats[2].Peer, seats[1].Peer, slow)
		})
	})
	return r, plans
}

// TestOtherKindsTrainAsOneStageDoes in virtual time: where there are so few micro-batches that filling and draining show, the planner
// takes another kind than 1F1B, whose steps are shorter. No loss differs, in its last bit, from those of one stage.
func TestOtherKindsTrainAsOneStageDoes(t *testing.T) {
	t.Parallel()
	run := rehearsedRun()
	run.Train.Micros, run.Train.Steps = 10, 6
	alone := run
	alone.Train.Stages = 1
	want, _ := slowed(t, alone, "", 0, link.LinkConditions{})
	plain, _ := slowed(t, run, plan.ScheduleName, 0, link.LinkConditions{})
	other, plans := slowed(t, run, "", 0, link.LinkConditions{})
	for _, r := range []*rehearsal{plain, other} {
		if !maps.Equal(r.losses, want.losses) {
			t.Errorf("%s: losses of %d steps, some differ from those of %d of one stage", r.course[0], len(r.losses), len(want.losses))
		}
	}
	if len(plans) != 1 || plans[0].Schedule == plan.ScheduleName || len(plans[0].Workers()) < 2 {
		t.Fatalf("%d plans, courses by step: %q", len(plans), other.course)
	}
	usual, less := plain.mean(3, 6), other.mean(3, 6)
	if t.Logf("a step takes %v under %.20s, %v in 1f1b", less, plans[0].Schedule, usual); less > usual {
		t.Error("longer than in 1f1b")
	}
}

// TestOtherKindsAdapt in virtual time, when a link becomes too slow for the orders that were chosen, in rate and latency or in latency
// alone: the same devices go on in other orders or kinds, and steps come to be about as long as in 1F1B all along, which adapts as
// well. No loss differs.
func TestOtherKindsAdapt(t *testing.T) {
	if testing.Short() {
		t.Skip("200 steps of 10 or 20 micro-batches; TestOtherKindsTrainAsOneStageDoes and TestScheduleChangesWithTheLink have the same parts")
	}
	const slowAfter = 4
	for _, c := range []struct {
		micros int
		steps  plan.Step
		slow   link.LinkConditions
	}{
		{micros: 20, steps: 50, slow: link.LinkConditions{BytesPerS: 625_000, Delay: 60 * time.Millisecond}},
		{micros: 10, steps: 50, slow: link.LinkConditions{BytesPerS: 3_125_000, Delay: 90 * time.Millisecond}},
	} {
		run := rehearsedRun()
		run.Train.Micros, run.Train.Steps = c.micros, c.steps
		plain, _ := slowed(t, run, plan.ScheduleName, slowAfter, c.slow)
		other, plans := slowed(t, run, "", slowAfter, c.slow)
		if !maps.Equal(other.losses, plain.losses) {
			t.Errorf("losses of %d steps, some differ from those of %d in 1f1b", len(other.losses), len(plain.losses))
		}
		courses := slices.Compact(slices.Clone(other.course))
		if plans[0].Schedule == plan.ScheduleName || len(courses) < 2 || !slices.Equal(plans[0].Workers(), plans[len(plans)-1].Workers()) {
			t.Errorf("%d plans, courses by step: %q", len(plans), courses)
		}
		last := int(c.steps)
		usual, before, after := plain.mean(last-2, last), other.mean(slowAfter+2, slowAfter+4), other.mean(last-2, last)
		t.Logf("steps of %v over the slow link, then %v, in 1f1b %v; %q", before, after, usual, courses)
		if after > usual*11/10 || after >= before {
			t.Errorf("a step takes %v over the slow link, %v in the end, in 1f1b %v", before, after, usual)
		}
	}
}
