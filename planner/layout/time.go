package layout

import (
	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
)

// Time runs the programs.
func (s *Site) Time(l *Layout) (err error) {
	l.End, err = schedule.Makespan(l.program(), s.Timing(l))
	return err
}

// program is what the workers run.
func (l *Layout) program() schedule.Schedule {
	return schedule.WithRecompute(l.Programs, func(r schedule.Replica, st schedule.Stage) bool { return l.Rows[r][st].Ahead > 0 })
}

// Timing is what passes and messages of a layout take. Reductions and updates come behind.
func (s *Site) Timing(l *Layout) (t schedule.Timing) {
	for r, row := range l.Rows {
		costs := schedule.Costs{Stages: make([]schedule.StageTime, len(row))}
		for st, k := range row {
			costs.Stages[st] = s.CellTime(k)
			if st > 0 {
				from, to := row[st-1].Unit, k.Unit
				bytes := l.Codecs[r][st-1].Bytes(Elements(s.Books.Boundary(k.First-1) / int64(max(k.Use.Segments, 1))))
				costs.Boundaries = append(costs.Boundaries, schedule.Boundary{Activation: s.Link(from, to).Hop(bytes), Gradient: s.Link(to, from).Hop(bytes)})
			}
		}
		t.Replicas = append(t.Replicas, costs)
	}
	return t
}

// CellTime is what a stage takes per micro-batch, or per segment of one on average. Where its
// backward is split, what the weight gradient alone reads is computed again there, and a whole
// block and the head's logits twice.
func (s *Site) CellTime(k Cell) schedule.StageTime {
	if k.Seen != nil {
		passes := *k.Seen
		passes.Update = 0 // comes behind
		return passes
	}
	u, costs := s.Units[k.Unit], s.Ledger(k.Unit).Costs()
	t := u.Times[k.End].Sub(u.Times[k.First])
	out := schedule.StageTime{Forward: t.Forward, Input: t.Input, Weight: t.Weight}
	_, fixed := s.Books.Level()
	for i, level := range s.levelsOf(k) {
		if k.Use.Split {
			out.Weight += cost.Duration(costs[k.First+i].SplitFLOPs, u.Speed.MatMulFLOPS)
		}
		again := s.again(k, i, level).Time
		if fixed { // there it is in the costs, as a part of the input gradient
			out.Input -= again
		}
		if k.Use.Split {
			out.Weight += again
		}
		switch {
		case !k.early(level):
		case i >= k.Len()-k.Ahead:
			out.Recompute += again
		default:
			out.Input += again
		}
	}
	return out.Over(max(k.Use.Segments, 1))
}

// again is what a stage computes again of its layer i under a level.
func (s *Site) again(k Cell, i int, level model.Recompute) elastic.Lean {
	return s.Ledger(k.Unit).Again(s.Units[k.Unit].Speed, k.First+i, level)
}

// levelsOf are a stage's by layer, chosen or fixed by the run.
func (s *Site) levelsOf(k Cell) []model.Recompute {
	if level, fixed := s.Books.Level(); fixed {
		return level.Uniform(k.Len())
	}
	if k.Levels == nil {
		return model.RecomputeNothing.Uniform(k.Len())
	}
	return k.Levels
}

// early tells whether the input gradient reads what a level drops, and not the weight gradient
// alone, which has it computed again when it comes to it.
func (k Cell) early(level model.Recompute) bool {
	return level == model.RecomputeBlock || level != model.RecomputeNothing && !k.Use.Split
}

// Busiest is the unit that computes for longest in a layout, and for how long.
func (s *Site) Busiest(l *Layout) (unit int, computes schedule.Nanos) {
	busy := make([]schedule.Nanos, len(s.Units))
	for r, costs := range s.Timing(l).Replicas {
		for st, t := range costs.Stages {
			at := l.Rows[r][st].Unit
			if busy[at] += schedule.Nanos(l.Micros[r]) * (t.Micro() + t.Recompute); busy[at] > busy[unit] {
				unit = at
			}
		}
	}
	return unit, busy[unit]
}

// BusiestLink is how long messages occupy the link that has most of them, one way.
func (s *Site) BusiestLink(l *Layout) (most schedule.Nanos) {
	busy := map[[2]int]schedule.Nanos{}
	for r, costs := range s.Timing(l).Replicas {
		for b, hops := range costs.Boundaries {
			from, to := l.Rows[r][b].Unit, l.Rows[r][b+1].Unit
			for link, hop := range map[[2]int]schedule.Hop{{from, to}: hops.Activation, {to, from}: hops.Gradient} {
				busy[link] += hop.Transfer * schedule.Nanos(l.Micros[r])
				most = max(most, busy[link])
			}
		}
	}
	return most
}
