package schedule

import "cmp"

// Demand sums up the stages from one of them to the last at a period: the warm-up of
// the first of them, and the longest round trip from there that warm-ups have to share. With
// w_q the smallest warm-ups and round(r,q) the round trip from stage r to q,
//
//	w_r = max_{q>r} (w_q - 1 + ceil(round(r,q) / P)),
//
// so that the stage before needs of them no more than max_{q>=r} (round(r,q) + (w_q-1) P)
// (schedules: elastic in-flight schedule, case c). Less of it never asks for more of any
// stage before: of several ways to run a stage the one of the least demand is the best for all.
type Demand struct {
	Warmup int
	round  Nanos
}

// DemandOf returns the demand of the last stage alone.
func DemandOf(last StageTime, p Nanos) Demand { return Demand{round: last.busy() - p} }

// Before is the demand with one more stage in front.
func (d Demand) Before(t StageTime, b Boundary, p Nanos) Demand {
	through := t.Micro() + b.roundTrip() + d.round
	w := max(d.Warmup, int(ceilDiv(through, p)))
	return Demand{w, max(through, t.busy()+Nanos(w-1)*p)}
}

// Compare orders demands, as cmp.Compare does.
func (d Demand) Compare(o Demand) int {
	return cmp.Or(cmp.Compare(d.round, o.round), cmp.Compare(d.Warmup, o.Warmup))
}
