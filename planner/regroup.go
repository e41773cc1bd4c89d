package planner

import (
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/elastic"
	"pnode/planner/layout"
	"pnode/planner/plan"
)

// regroup is Reselect for groups: the ones, of any depth, in which the same chunks end first with
// the times that were seen and fit with what the stages compute again now. A commit can make that
// change. Where it gains little of what a step takes, the same devices may do better without
// groups: links that have become slow show less with one chunk a device. Nothing is looked for
// while a step takes what was promised.
func (c *cluster) regroup(out Reselection, current plan.Plan, seen Seen) (Reselection, error) {
	now, err := c.onCourse(current, seen)
	if err != nil {
		return out, err
	}
	if out.Now, out.InPlace = now.step(), true; out.asPromised() {
		current.Generation, current.Start = c.in.Generation, c.in.Start
		out.Plan, out.Then, out.Reasons = current, out.Now, c.of(now).whole.explain(now, nil)
		return out, nil
	}
	best, p, err := c.otherGroups(now, current, seen)
	if err != nil {
		return out, err
	}
	what := "other groups for the same chunks"
	if !gains(out.usual(), best.step()) {
		plain, err := c.ungrouped(now, seen)
		if err == nil && plain.step() < best.step() {
			what, best, out.InPlace = "one chunk a device", plain, false
			if p, err = c.plan(plain); err == nil {
				c.assignHolders(&p)
			}
		}
		if err != nil && !errors.Is(err, ErrNoFit) {
			return out, err
		}
	}
	p.Generation, p.Start = c.in.Generation, c.in.Start
	out.Plan, out.Then = p, best.step()
	out.Why = fmt.Sprintf("a step takes %s, predicted were %s; %s would take %s instead of %s: %s instead of %s",
		plan.Time(out.Seen), plan.Time(out.Promised), what, plan.Time(out.Then), plan.Time(out.Now), p.ScheduleChoice(), current.Schedule)
	out.Reasons = c.of(best).whole.explain(best, nil)
	return out, nil
}

// otherGroups are the best ones for the chunks of a running plan, which stays where they are no
// better.
func (c *cluster) otherGroups(now *candidate, current plan.Plan, seen Seen) (*candidate, plan.Plan, error) {
	p := c.running(now)
	for range groupTries {
		g, err := elastic.ChooseGroups(p)
		if err != nil {
			break // no others have room
		}
		next, err := current.WithSchedule(plan.ScheduleChoice{Schedule: g.Spec(p).String()})
		if err != nil {
			return nil, plan.Plan{}, err
		}
		if _, err := schedule.ParseSpec(next.Schedule); err != nil {
			break // such groups cannot be told in a plan
		}
		then, err := c.onCourse(next, seen)
		if err != nil {
			return nil, plan.Plan{}, err
		}
		if c.site.FitBeside(then.layout.Rows, now.layout.Rows) {
			if then.step() < now.step() {
				return then, next, nil
			}
			break
		}
		p.Caps = tighter(p.Caps, c.site.Caps(now.layout, schedule.MaxNumber))
	}
	return now, current, nil
}

// ungrouped is a running candidate with one chunk a device in 1F1B, simulated with the times that
// were seen. Errors wrap ErrNoFit.
func (c *cluster) ungrouped(now *candidate, seen Seen) (*candidate, error) {
	k := &candidate{shape: now.shape, shares: now.shares, sharded: now.sharded, away: now.away}
	in := c.of(k)
	for r, p := range now.pipes {
		p.Recompute = make([][]model.Recompute, len(p.units))
		problem := in.problemSeen(p, plan.Replica(r), now.shares[r], c.joined(now.layout, plan.Replica(r), len(p.units), seen))
		chosen, err := in.choosePipe(p.units, p.ends, problem)
		if err != nil {
			return nil, c.noFit(p.units, err)
		}
		if chosen.Decision, err = elastic.Widen(chosen.problem, chosen.Decision); err != nil {
			return nil, err
		}
		k.pipes = append(k.pipes, chosen)
	}
	_, err := in.stepOf(k)
	return k, err
}

// joined is what the chunks of each device of a replica were seen to take as one stage, with
// nothing computed again that the plan chose to; of devices all of whose chunks were seen.
func (c *cluster) joined(l *layout.Layout, replica plan.Replica, workers int, seen Seen) (out Seen) {
	sums, chunks := make([]StageSeen, workers), make([]int, workers)
	for _, s := range seen.Stages {
		if s.Replica != replica || s.Stage < 0 || int(s.Stage) >= len(l.Rows[replica]) {
			continue
		}
		w, k := int(s.Stage)%workers, l.Cell(layout.At{Replica: replica, Stage: s.Stage})
		_, again := c.site.Again(k.Unit, k.First, k.Levels, 0)
		sums[w].ForwardNanos += s.ForwardNanos
		sums[w].BackwardNanos += max(1, s.BackwardNanos-int64(again)*int64(l.Micros[replica]))
		sums[w].UpdateNanos += s.UpdateNanos
		chunks[w]++
	}
	for w, sum := range sums {
		if sum.Replica, sum.Stage = replica, plan.Stage(w); chunks[w]*workers == len(l.Rows[replica]) {
			out.Stages = append(out.Stages, sum)
		}
	}
	return out
}

// onCourse is a grouped plan as a candidate, simulated with the times that were seen.
func (c *cluster) onCourse(p plan.Plan, seen Seen) (*candidate, error) {
	k, err := c.adopt(p)
	if err != nil {
		return nil, err
	}
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", plan.ErrBadPlan, err)
	}
	k.groups = &grouping{order: ordering{spec: spec, copies: 1}}
	c.site.Note(k.layout, seen.Stages)
	if err := c.site.Time(k.layout); err != nil {
		return nil, fmt.Errorf("planner: reselect: %w", err)
	}
	c.site.SumNeeds(k.layout)
	_, err = c.of(k).stepOf(k)
	return k, err
}

// running is a candidate's interleaving, with the times and the codecs that it has.
func (c *cluster) running(k *candidate) elastic.Interleaving {
	p := elastic.Interleaving{Workers: k.shape.stages, Micros: slices.Max(k.shares), Costs: late(longest(c.site.Timing(k.layout).Replicas))}
	p.Nodes = groupWork / (2 * p.Micros * len(p.Costs.Stages))
	return p
}
