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

// TestGroupsTrainAsOneStageDoes in virtual time: the planner has chunks go through groups, whose
// steps are shorter than in 1F1B where there are so few micro-batches that filling and draining
// show. No loss differs, in its last bit, from those of one stage.
func TestGroupsTrainAsOneStageDoes(t *testing.T) {
	t.Parallel()
	run := rehearsedRun()
	run.Train.Micros, run.Train.Steps = 10, 6
	alone := run
	alone.Train.Stages = 1
	want, _ := slowed(t, alone, "", 0, link.LinkConditions{})
	plain, _ := slowed(t, run, plan.ScheduleName, 0, link.LinkConditions{})
	grouped, plans := slowed(t, run, "", 0, link.LinkConditions{})
	for _, r := range []*rehearsal{plain, grouped} {
		if !maps.Equal(r.losses, want.losses) {
			t.Errorf("%s: losses of %d steps, some differ from those of %d of one stage", r.course[0], len(r.losses), len(want.losses))
		}
	}
	if len(plans) != 1 || len(plans[0].Replicas[0].Stages) < 2*len(plans[0].Workers()) {
		t.Fatalf("%d plans, courses by step: %q", len(plans), grouped.course)
	}
	if usual, groups := plain.mean(3, 6), grouped.mean(3, 6); groups > usual {
		t.Errorf("a step takes %v in groups, %v in 1f1b", groups, usual)
	}
}

// TestGroupsAreGivenUp in virtual time, when a link becomes too slow for the messages of several
// chunks a device, in rate and latency or in latency alone: after a change in place or without one
// the same devices have one chunk each, and steps come to be about as long as in 1F1B all along,
// which adapts as well. No loss differs.
func TestGroupsAreGivenUp(t *testing.T) {
	if testing.Short() {
		t.Skip("200 steps of 10 or 20 micro-batches; TestGroupsTrainAsOneStageDoes and TestScheduleChangesWithTheLink have the same parts")
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
		grouped, plans := slowed(t, run, "", slowAfter, c.slow)
		if !maps.Equal(grouped.losses, plain.losses) {
			t.Errorf("losses of %d steps, some differ from those of %d in 1f1b", len(grouped.losses), len(plain.losses))
		}
		if len(plans) != 2 || plans[0].Schedule == plan.ScheduleName || plans[1].Schedule != plan.ScheduleName || !slices.Equal(plans[0].Workers(), plans[1].Workers()) {
			t.Fatalf("%d plans, courses by step: %q", len(plans), grouped.course)
		}
		last := int(c.steps)
		usual, before, after := plain.mean(last-2, last), grouped.mean(slowAfter+2, slowAfter+4), grouped.mean(last-2, last)
		t.Logf("steps of %v over the slow link, then %v, in 1f1b %v; %q, the last from step %d on", before, after, usual, slices.Compact(slices.Clone(grouped.course)), plans[1].Start+1)
		if after > usual*11/10 || after > before/2 {
			t.Errorf("a step takes %v over the slow link, %v in the end, in 1f1b %v", before, after, usual)
		}
	}
}
