package elastic

import (
	"cmp"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// option is one way to run a stage: a rung of its ladder, with the last so many layers computed
// again ahead of the gradient. Those wait for it otherwise, inside the backward pass.
type option struct {
	rung, layers int
	// time is the stage's with that.
	time schedule.StageTime
	Room
}

// options are a stage's by rung, the rung that takes the least time first, and by layers ahead
// of the gradient, of which there are none on the last stage: it waits for no gradient.
func (s *solver) options(stage int) [][]option {
	st := s.p.Stages[stage]
	var all [][]option
	for rung := range s.ladders[stage] {
		all = append(all, s.p.atRung(st, s.ladders[stage], rung, stage < len(s.p.Stages)-1))
	}
	return all
}

// atRung are the options of a stage at a rung: nothing ahead of the gradient first. A layer that
// is restored ahead has room of its own for that, and its passes need no more than without.
func (p Problem) atRung(st Stage, l ladder, rung int, waits bool) []option {
	again := st.again(l, rung)
	pass := make([]int64, len(again)+1) // by number of layers that are not ahead
	for i, lean := range again {
		pass[i+1] = max(pass[i], lean.PassBytes)
	}
	at := option{rung: rung, time: st.Time, Room: Room{SlotBytes: st.SlotBytes - l[rung].freed, PassBytes: pass[len(again)]}}
	at.time.Input += l[rung].time
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

// again is by layer what a stage computes again at a rung.
func (st Stage) again(l ladder, rung int) []cost.Recomputation {
	if rung == 0 {
		return st.Given
	}
	again := make([]cost.Recomputation, len(st.Layers))
	for i, level := range l.levels(rung, len(st.Layers)) {
		again[i] = st.Layers[i][level]
	}
	return again
}

// fits is how many micro-batches of a stage fit at once, math.MaxInt32 where all of a step's do.
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

// holds tells whether there is room for a warm-up.
func (p Problem) holds(r Room, warmup int) bool { return r.InFlight >= min(warmup+1, p.Micros) }

// demand is that of a stage with an option in front of what is behind it, nil on the last
// stage; not ok where it is too slow for the period or has no room.
func (s *solver) demand(stage int, o option, behind *schedule.Demand, period schedule.Nanos) (d schedule.Demand, ok bool) {
	if o.time.Micro()+o.time.Recompute > period {
		return d, false
	}
	if behind == nil {
		d = schedule.DemandOf(o.time, period)
	} else {
		d = behind.Before(o.time, s.costs.Boundaries[stage], period)
	}
	return d, s.p.holds(o.Room, d.Warmup)
}

// least takes the option of the least demand on a stage; of equals the one that recomputes
// least, with the fewest layers ahead. Not ok where there is none.
func (s *solver) least(stage int, among [][]option, behind *schedule.Demand, period schedule.Nanos) (best option, d schedule.Demand, ok bool) {
	for _, rung := range among {
		for _, o := range slices.Backward(rung) { // the most ahead demands least, where there is room for it
			at, fits := s.demand(stage, o, behind, period)
			if !fits {
				continue
			}
			if !ok || cmp.Or(at.Compare(d), cmp.Compare(o.rung, best.rung), cmp.Compare(o.layers, best.layers)) < 0 {
				best, d, ok = o, at, true
			}
		}
	}
	return best, d, ok
}

// reaches tells whether the stages up to one reach a period in front of what is behind them.
func (s *solver) reaches(stage int, behind *schedule.Demand, period schedule.Nanos) bool {
	for ; stage >= 0; stage-- {
		_, d, ok := s.least(stage, s.choices[stage], behind, period)
		if !ok {
			return false
		}
		behind = &d
	}
	return true
}

// frugal are by stage the options that reach a period: from the last stage on the least
// recomputation, and of that the fewest layers ahead of the gradient, with which the stages
// before can reach it. nil where they cannot.
func (s *solver) frugal(period schedule.Nanos) []option {
	picks := make([]option, len(s.p.Stages))
	var behind *schedule.Demand
	for stage := len(picks) - 1; stage >= 0; stage-- {
		o, d, ok := s.thrifty(stage, behind, period)
		if !ok {
			return nil
		}
		picks[stage], behind = o, &d
	}
	return picks
}

// thrifty is frugal for one stage.
func (s *solver) thrifty(stage int, behind *schedule.Demand, period schedule.Nanos) (o option, d schedule.Demand, ok bool) {
	for r, rung := range s.choices[stage] {
		if _, d, ok = s.least(stage, s.choices[stage][r:r+1], behind, period); !ok || !s.reaches(stage-1, &d, period) {
			continue
		}
		for _, o = range rung {
			if d, ok = s.demand(stage, o, behind, period); ok && s.reaches(stage-1, &d, period) {
				return o, d, true
			}
		}
	}
	return o, d, false
}

// fill has as much computed again ahead of the gradient as there is room for: it lets late
// gradients show less, and costs nothing but memory that nothing else has a use for.
func (s *solver) fill(stage int, o option, warmup int) option {
	for _, more := range s.choices[stage][o.rung] {
		if more.layers > o.layers && s.p.holds(more.Room, warmup) {
			o = more
		}
	}
	return o
}
