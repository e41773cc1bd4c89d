package planner

import (
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// timeLayout runs the programs.
func (c *cluster) timeLayout(l *layout) (err error) {
	l.end, err = schedule.Makespan(l.program(), c.timing(l))
	return err
}

// program is what the workers run.
func (l *layout) program() schedule.Schedule {
	return schedule.WithRecompute(l.list, func(r Replica, s Stage) bool { return l.rows[r][s].ahead > 0 })
}

// timing is what passes and messages of a layout take. Reductions and updates come behind.
func (c *cluster) timing(l *layout) (t schedule.Timing) {
	for r, row := range l.rows {
		costs := schedule.Costs{Stages: make([]schedule.StageTime, len(row))}
		for s, k := range row {
			costs.Stages[s] = c.cellTime(k)
			if s > 0 {
				from, to := row[s-1].unit, k.unit
				bytes := l.codecs[r][s-1].Bytes(elements(c.boundary[k.first-1] / int64(max(k.use.Segments, 1))))
				costs.Boundaries = append(costs.Boundaries, schedule.Boundary{Activation: c.link(from, to).Hop(bytes), Gradient: c.link(to, from).Hop(bytes)})
			}
		}
		t.Replicas = append(t.Replicas, costs)
	}
	return t
}

// cellTime is what a stage takes per micro-batch, or per segment of one on average. Where its
// backward is split, what the weight gradient alone reads is computed again there, and a whole
// block and the head's logits twice.
func (c *cluster) cellTime(k cell) schedule.StageTime {
	if k.seen != nil {
		passes := *k.seen
		passes.Update = 0 // comes behind
		return passes
	}
	u := c.units[k.unit]
	t := u.times[k.end].Sub(u.times[k.first])
	out := schedule.StageTime{Forward: t.Forward, Input: t.Input, Weight: t.Weight}
	_, fixed := c.in.Run.Train.Recompute.Level()
	for i, level := range c.levelsOf(k) {
		if k.use.Split {
			out.Weight += cost.Duration(c.ledger(k.unit).costs[k.first+i].SplitFLOPs, u.speed.MatMulFLOPS)
		}
		again := c.leanOf(k.unit, k.first+i, level).Time
		if fixed { // there it is in the costs, as a part of the input gradient
			out.Input -= again
		}
		if k.use.Split {
			out.Weight += again
		}
		switch {
		case !k.early(level):
		case i >= k.end-k.first-k.ahead:
			out.Recompute += again
		default:
			out.Input += again
		}
	}
	return out.Over(max(k.use.Segments, 1))
}

// levelsOf are a stage's by layer, chosen or fixed by the run.
func (c *cluster) levelsOf(k cell) []model.Recompute {
	if level, fixed := c.in.Run.Train.Recompute.Level(); fixed {
		return level.Uniform(k.end - k.first)
	}
	if k.levels == nil {
		return model.RecomputeNothing.Uniform(k.end - k.first)
	}
	return k.levels
}

// early tells whether the input gradient reads what a level drops, and not the weight gradient
// alone, which has it computed again when it comes to it.
func (k cell) early(level model.Recompute) bool {
	return level == model.RecomputeBlock || level != model.RecomputeNothing && !k.use.Split
}
