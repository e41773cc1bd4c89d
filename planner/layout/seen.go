package layout

import (
	"math/bits"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// StageSeen is where a stage's step went: computing forwards, computing backwards, and
// applying the update.
type StageSeen struct {
	Replica                                  schedule.Replica
	Stage                                    schedule.Stage
	ForwardNanos, BackwardNanos, UpdateNanos int64
}

// Note gives a layout's stages the times that were seen; what names no stage is passed over.
func (s *Site) Note(l *Layout, seen []StageSeen) {
	for _, one := range seen {
		if one.Replica < 0 || one.Stage < 0 || int(one.Replica) >= len(l.Rows) || int(one.Stage) >= len(l.Rows[one.Replica]) || min(one.ForwardNanos, one.BackwardNanos) <= 0 {
			continue
		}
		k := l.Cell(At{one.Replica, one.Stage})
		each := func(nanos int64) schedule.Nanos {
			return min(schedule.Nanos(nanos)/schedule.Nanos(l.Micros[one.Replica]), cost.Longest)
		}
		t := s.CellTime(*k)
		backward, whole := max(1, each(one.BackwardNanos)), t.Input+t.Weight+t.Recompute
		t.Forward, t.Weight, t.Recompute = each(one.ForwardNanos), MulDiv(backward, t.Weight, whole), MulDiv(backward, t.Recompute, whole)
		t.Input = max(0, backward-t.Weight-t.Recompute)
		t.Update = min(schedule.Nanos(max(one.UpdateNanos, 0)), cost.Longest)
		k.Seen = &t
	}
}

// MulDiv is a*b/c for b <= c, rounded down; a/2 when c is 0.
func MulDiv(a, b, c schedule.Nanos) schedule.Nanos {
	if c <= 0 {
		return a / 2
	}
	high, low := bits.Mul64(uint64(a), uint64(b))
	n, _ := bits.Div64(high, low, uint64(c))
	return schedule.Nanos(n)
}
