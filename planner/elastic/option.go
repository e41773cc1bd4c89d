package elastic

import (
	"cmp"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// option is one way to run a stage: a point of its frontier, with the last so many layers recomputed
// ahead of the gradient. Those wait for it otherwise, inside the backward pass.
type option struct {
	point, layers int
	// time is the stage's time with that.
	time schedule.StageTime
	Room
}

// optionsAt returns the options of a stage at a point: nothing ahead of the gradient first. A layer that
// is restored ahead has room of its own for that, and its passes need no more than without.
func (p Problem) optionsAt(st Stage, f frontier, point int, waits bool) []option {
	again := st.again(f, point)
	pass := make([]int64, len(again)+1) // by number of layers that are not ahead
	for i, lean := range again {
		pass[i+1] = max(pass[i], lean.PassBytes)
	}
	at := option{point: point, time: st.Time, Room: Room{SlotBytes: st.SlotBytes - f[point].freed, PassBytes: pass[len(again)]}}
	at.time.Input += f[point].time
	at.InFlight = p.fits(st, at.Room)
	all := []option{at}
	early := int64(0)
	for i := len(again) - 1; i >= 0 && waits; i-- {
		if again[i].AheadBytes == 0 && again[i].Time == 0 { // it keeps all
			continue
		}
		at.layers = len(again) - i
		at.time.Input -= again[i].Time
		at.time.Recompute += again[i].Time
		early += again[i].AheadBytes
		at.PassBytes = early + pass[i]
		at.InFlight = p.fits(st, at.Room)
		all = append(all, at)
	}
	return all
}

// useful returns by stage and point the options that no one before is as good as: one that takes as long at most, has room for as many
// micro-batches and comes first is taken in their place at any period.
func useful(choices [][][]option) [][][]option {
	out := make([][][]option, len(choices))
	for stage, points := range choices {
		var kept []option
		for _, options := range points {
			before := len(kept)
			for _, o := range options {
				if o.InFlight > 0 && !slices.ContainsFunc(kept, o.noBetter) {
					kept = append(kept, o)
				}
			}
			if len(kept) > before {
				out[stage] = append(out[stage], kept[before:len(kept):len(kept)])
			}
		}
	}
	return out
}

// noBetter reports whether an option takes as long as one before it at least, and has room for no more. What it recomputes in all is as
// much at least, since points follow one another.
func (o option) noBetter(than option) bool {
	return o.InFlight <= than.InFlight && o.time.Input >= than.time.Input
}

// again returns by layer what a stage recomputes at a point.
func (st Stage) again(f frontier, point int) []cost.Recomputation {
	if point == 0 {
		return st.Given
	}
	again := make([]cost.Recomputation, len(st.Layers))
	for i, level := range f.levels(point, len(st.Layers)) {
		again[i] = st.Layers[i][level]
	}
	return again
}

// fits returns how many micro-batches of a stage fit at once, math.MaxInt32 where all of a step's do.
func (p Problem) fits(st Stage, r Room) int {
	free := st.RoomBytes - r.PassBytes
	if free < r.SlotBytes {
		return 0
	}
	fit := int64(maxInFlight)
	if r.SlotBytes > 0 {
		fit = min(fit, free/r.SlotBytes)
	}
	if int(fit) >= p.Micros {
		return math.MaxInt32
	}
	return int(fit)
}

// holds reports whether there is room for a warm-up.
func (p Problem) holds(r Room, warmup int) bool { return r.InFlight >= min(warmup+1, p.Micros) }

// demand returns the demand of a stage with an option, given the demand of the later ones, nil on the
// last stage; not ok where it is too slow for the period or has no room.
func (s *solver) demand(stage int, o option, later *schedule.Demand, period schedule.Nanos) (d schedule.Demand, ok bool) {
	if o.time.Micro()+o.time.Recompute > period {
		return d, false
	}
	if later == nil {
		d = schedule.DemandOf(o.time, period)
	} else {
		d = later.Before(o.time, s.costs.Boundaries[stage], period)
	}
	return d, s.p.holds(o.Room, d.Warmup)
}

// least returns the option of the least demand on a stage; of equals the one that recomputes
// least, with the fewest layers ahead. Not ok where there is none.
func (s *solver) least(stage int, among [][]option, later *schedule.Demand, period schedule.Nanos) (best option, d schedule.Demand, ok bool) {
	for _, options := range among {
		for _, o := range slices.Backward(options) { // the most ahead demands least, where there is room for it
			at, fits := s.demand(stage, o, later, period)
			if !fits {
				continue
			}
			if !ok || cmp.Or(at.Compare(d), cmp.Compare(o.point, best.point), cmp.Compare(o.layers, best.layers)) < 0 {
				best, d, ok = o, at, true
			}
		}
	}
	return best, d, ok
}

// feasible reports whether stages 0..stage can keep this period, given the demand of the later ones.
func (s *solver) feasible(stage int, later *schedule.Demand, period schedule.Nanos) bool {
	for ; stage >= 0; stage-- {
		_, d, ok := s.least(stage, s.useful[stage], later, period)
		if !ok {
			return false
		}
		later = &d
	}
	return true
}

// frugal returns by stage the options that reach a period: from the last stage on the least
// recomputation, and of that the fewest layers ahead of the gradient, with which the earlier stages
// can reach it. nil where they cannot.
func (s *solver) frugal(period schedule.Nanos) []option {
	picks := make([]option, len(s.p.Stages))
	var later *schedule.Demand
	for stage := len(picks) - 1; stage >= 0; stage-- {
		o, d, ok := s.thrifty(stage, later, period)
		if !ok {
			return nil
		}
		picks[stage], later = o, &d
	}
	return picks
}

// thrifty is frugal for one stage.
func (s *solver) thrifty(stage int, later *schedule.Demand, period schedule.Nanos) (o option, d schedule.Demand, ok bool) {
	for r, options := range s.useful[stage] {
		if _, d, ok = s.least(stage, s.useful[stage][r:r+1], later, period); !ok || !s.feasible(stage-1, &d, period) {
			continue
		}
		for _, o = range options {
			if d, ok = s.demand(stage, o, later, period); ok && s.feasible(stage-1, &d, period) {
				return o, d, true
			}
		}
	}
	return o, d, false
}
