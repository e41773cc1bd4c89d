package planner

import (
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/layout"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// ErrNotElastic is wrapped when neither warm-ups nor groups of the running schedule are the
// planner's to choose.
var ErrNotElastic = errors.New("planner: the schedule has nothing to choose")

// Reselection compares the schedule that runs with the best one for the same stages on the
// same devices, both with the times that were seen.
type Reselection struct {
	// Plan is the current one with the better schedule, from the input's start and
	// generation on.
	Plan plan.Plan
	// Promised is the step that was predicted with the profiles, Seen what it took. Now is
	// the prediction for the schedule that runs and Then that for Plan's, with what was
	// seen.
	Promised, Seen, Now, Then schedule.Nanos
	// InPlace: the plans differ in their courses alone, which a commit can change.
	InPlace bool
	// Why tells of the change and what bounds it, Reasons explain the new plan.
	Why     string
	Reasons plan.Reasons
}

// Reselect derives the running plan's schedule again from what was seen: how much is in
// flight, and what is recomputed; or, where the planner chose groups, depth and groups, and only
// then whether to have any. Devices stay, and layers where groups do or there are none. Errors
// wrap ErrBadInput, ErrBadPlan or ErrNotElastic.
func Reselect(in Input, current plan.Plan, seen Seen) (Reselection, error) {
	c, err := newCluster(in, in.storingOf(current))
	if err != nil {
		return Reselection{}, err
	}
	grouped := c.grouped(current)
	if !grouped && (!current.Elastic() || !c.order.elastic()) {
		return Reselection{}, fmt.Errorf("%w: generation %d runs %s, the run is to have %s", ErrNotElastic, current.Generation, current.Schedule, c.order.spec)
	}
	promised, err := Predict(in, current)
	if err != nil {
		return Reselection{}, err
	}
	c.links = c.links.with(seen.Links)
	out := Reselection{Promised: promised.Step, Seen: schedule.Nanos(seen.StepNanos)}
	if grouped {
		return c.regroup(out, current, seen)
	}
	return c.under(current).redeepen(out, current, seen)
}

// redeepen is Reselect for warm-ups.
func (c *cluster) redeepen(out Reselection, current plan.Plan, seen Seen) (Reselection, error) {
	now, err := c.adopt(current)
	if err != nil {
		return out, err
	}
	then := &candidate{shape: now.shape, shares: now.shares, sharded: now.sharded, away: now.away}
	for r, p := range now.pipes {
		problem := c.problemSeen(p, plan.Replica(r), now.shares[r], seen)
		p.Costs = c.againAt(p, problem)
		chosen, err := c.choosePipe(p.units, p.ends, problem)
		if err != nil {
			return out, err
		}
		if chosen.Decision, err = elastic.Widen(chosen.problem, chosen.Decision); err != nil {
			return out, err
		}
		c.keepAhead(chosen, p)
		then.pipes = append(then.pipes, chosen)
	}
	if out.Now, err = c.stepOf(now); err == nil {
		out.Then, err = c.stepOf(then)
	}
	if err != nil {
		return out, err
	}
	out.Plan = c.reschedule(current, then)
	out.InPlace = slices.EqualFunc(out.Plan.Replicas, current.Replicas, func(a, b plan.Pipeline) bool { return slices.Equal(a.Stages, b.Stages) })
	out.Why, out.Reasons = c.whyReselect(current, out, then), c.explain(then, nil)
	return out, nil
}

// stepOf simulates a candidate whose pipes are timed.
func (c *cluster) stepOf(k *candidate) (schedule.Nanos, error) {
	if err := c.estimate(k); err != nil {
		return 0, err
	}
	result, err := sim.Run(k.job)
	if err != nil {
		return 0, fmt.Errorf("planner: reselect: %w", err)
	}
	k.result, k.simulated = result, true
	return result.Step, nil
}

// problemSeen is a pipe's with the stages' own times where they were seen.
func (c *cluster) problemSeen(p *pipe, replica plan.Replica, micros int, seen Seen) elastic.Problem {
	problem := c.problem(p)
	for _, s := range seen.Stages {
		if s.Replica != replica || int(s.Stage) >= len(p.units) || s.Stage < 0 || min(s.ForwardNanos, s.BackwardNanos) <= 0 {
			continue
		}
		stage := &problem.Stages[s.Stage]
		t, before := &stage.Time, stage.Time.Input
		each := func(nanos int64) schedule.Nanos {
			return min(schedule.Nanos(nanos)/schedule.Nanos(micros), cost.Longest)
		}
		first, _ := p.layers(int(s.Stage))
		_, again := c.site.Again(p.units[s.Stage], first, p.Recompute[s.Stage], 0)
		backward := max(1, each(s.BackwardNanos)-again)
		t.Weight = layout.MulDiv(backward, t.Weight, t.Input+t.Weight)
		t.Forward, t.Input = each(s.ForwardNanos), backward-t.Weight
		for i := range stage.Given { // parts of the input gradient
			stage.Given[i].Time = layout.MulDiv(t.Input, stage.Given[i].Time, before)
		}
		if s.UpdateNanos > 0 {
			t.Update = min(schedule.Nanos(s.UpdateNanos), cost.Longest)
		}
	}
	return problem
}

// reschedule is the current plan with a candidate's schedule.
func (c *cluster) reschedule(current plan.Plan, k *candidate) plan.Plan {
	next := current
	next.Generation, next.Start = c.in.Generation, c.in.Start
	next.Replicas = slices.Clone(current.Replicas)
	_, fixed := c.in.Run.Train.Recompute.Level()
	for r, p := range k.pipes {
		pipe := &next.Replicas[r]
		pipe.Stages, pipe.Warmups = slices.Clone(pipe.Stages), make([]int, len(p.Warmups))
		for s, w := range p.Warmups {
			pipe.Warmups[s] = min(w, pipe.Micros-1)
			if !fixed {
				pipe.Stages[s].Recompute = plan.JoinLevels(p.Recompute[s])
			}
			pipe.Stages[s].Ahead = p.Ahead[s]
			if s < len(p.Codecs) {
				pipe.Stages[s].Codec = p.Codecs[s].String()
			}
		}
	}
	return next
}

func (c *cluster) whyReselect(current plan.Plan, r Reselection, k *candidate) string {
	text := fmt.Sprintf("a step takes %s, predicted were %s; another schedule for the same stages takes %s instead of %s",
		plan.Time(r.Seen), plan.Time(r.Promised), plan.Time(r.Then), plan.Time(r.Now))
	slowest := k.result.Slowest
	return text + fmt.Sprintf(": warm-ups %v instead of %v in replica %d, %s",
		r.Plan.Replicas[slowest].Warmups, current.Replicas[slowest].Warmups, slowest, c.boundText(slowest, k.pipes[slowest]))
}

// keepAhead has the stages of a chosen pipe compute as little ahead of the gradient as they do
// now, where that does not lengthen the period: their memory stays as it is.
func (c *cluster) keepAhead(chosen, now *pipe) {
	kept := *chosen
	kept.Ahead = slices.Clone(chosen.Ahead)
	for s := range kept.Ahead {
		if slices.Equal(chosen.Recompute[s], now.Recompute[s]) {
			kept.Ahead[s] = min(chosen.Ahead[s], now.Ahead[s])
		}
	}
	if kept.Costs = c.againAt(&kept, chosen.problem); kept.Costs.Period(kept.Warmups) <= chosen.Period {
		*chosen = kept
	}
}
