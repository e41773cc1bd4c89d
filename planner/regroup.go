package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
)

// regroup is Reselect for groups: the ones, of any depth, in which the same chunks end first with
// the times that were seen and fit with what the stages compute again now. The course is all
// that changes.
func (c *cluster) regroup(out Reselection, current Plan, seen Seen) (Reselection, error) {
	now, err := c.onCourse(current, seen)
	if err != nil {
		return out, err
	}
	best, plan := now, current
	p := c.running(now)
	for range groupTries {
		g, err := elastic.ChooseGroups(p)
		if err != nil {
			break // no others have room
		}
		next, err := current.On(Course{Schedule: g.Spec(p).String()})
		if err != nil {
			return out, err
		}
		then, err := c.onCourse(next, seen)
		if err != nil {
			return out, err
		}
		if c.fitsBeside(then.layout, now.layout) {
			if then.layout.end < best.layout.end {
				best, plan = then, next
			}
			break
		}
		p.Caps = tighter(p.Caps, c.capsOf(now.layout))
	}
	plan.Generation, plan.Start = c.in.Generation, c.in.Start
	out.Plan, out.Now, out.Then, out.InPlace = plan, now.step(), best.step(), true
	out.Why = fmt.Sprintf("a step takes %s, predicted were %s; other groups for the same chunks take %s instead of %s: %s instead of %s",
		cost.Time(out.Seen), cost.Time(out.Promised), cost.Time(out.Then), cost.Time(out.Now), plan.Schedule, current.Schedule)
	out.Reasons = c.of(best).whole.explain(best, nil)
	return out, nil
}

// onCourse is a grouped plan as a candidate, simulated with the times that were seen.
func (c *cluster) onCourse(p Plan, seen Seen) (*candidate, error) {
	k, err := c.adopt(p)
	if err != nil {
		return nil, err
	}
	spec, err := schedule.ParseSpec(p.Schedule)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadPlan, err)
	}
	k.groups = &grouping{order: ordering{spec: spec, copies: 1}}
	c.noteTimes(k.layout, seen)
	if err := c.timeLayout(k.layout); err != nil {
		return nil, fmt.Errorf("planner: reselect: %w", err)
	}
	c.sumNeeds(k.layout)
	_, err = c.of(k).stepOf(k)
	return k, err
}

// noteTimes gives a layout's stages the times that were seen.
func (c *cluster) noteTimes(l *layout, seen Seen) {
	for _, s := range seen.Stages {
		if s.Replica < 0 || s.Stage < 0 || int(s.Replica) >= len(l.rows) || int(s.Stage) >= len(l.rows[s.Replica]) || min(s.ForwardNanos, s.BackwardNanos) <= 0 {
			continue
		}
		k := l.cell(Holding{s.Replica, s.Stage})
		each := func(nanos int64) schedule.Nanos {
			return min(schedule.Nanos(nanos)/schedule.Nanos(l.micros[s.Replica]), cost.Longest)
		}
		t := c.cellTime(*k)
		backward, whole := max(1, each(s.BackwardNanos)), t.Input+t.Weight+t.Recompute
		t.Forward, t.Weight, t.Recompute = each(s.ForwardNanos), mulDiv(backward, t.Weight, whole), mulDiv(backward, t.Recompute, whole)
		t.Input = max(0, backward-t.Weight-t.Recompute)
		k.seen = &t
	}
}

// sumNeeds adds up what the stages of each unit take.
func (c *cluster) sumNeeds(l *layout) {
	l.need = make([]int64, len(c.units))
	for _, row := range l.rows {
		for _, k := range row {
			l.need[k.unit] += c.cellBytes(k)
		}
	}
}

// running is a candidate's interleaving, with the times and the codecs that it has.
func (c *cluster) running(k *candidate) elastic.Interleaving {
	p := elastic.Interleaving{Workers: k.shape.stages, Micros: slices.Max(k.shares), Costs: late(longest(c.timing(k.layout).Replicas))}
	p.Nodes = groupWork / (2 * p.Micros * len(p.Costs.Stages))
	return p
}

// fitsBeside tells whether every unit has room for a layout while its stages, one after the
// other, change over from another one of the same layers.
func (c *cluster) fitsBeside(l, from *layout) bool {
	need := make([]int64, len(c.units))
	for r, row := range l.rows {
		for s, k := range row {
			need[k.unit] += max(c.cellBytes(k), c.cellBytes(from.rows[r][s]))
		}
	}
	for u, bytes := range need {
		if bytes > 0 && bytes > c.stageRoom(u) {
			return false
		}
	}
	return true
}
