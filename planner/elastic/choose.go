package elastic

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

// Choose finds the least period that memory allows with the narrowest codecs, recomputing no
// more than it takes. An error wraps ErrBadProblem or schedule.ErrBadCosts or is a *NoRoom.
func Choose(p Problem) (Decision, error) {
	if err := p.check(); err != nil {
		return Decision{}, err
	}
	return p.solve(slices.Repeat([]cost.Codec{p.narrowest()}, len(p.Boundaries)))
}

// solve is Choose with given codecs. Recomputing is worth a look only where memory keeps
// the pipeline from the period that its slowest stage or link sets.
func (p Problem) solve(codecs []cost.Codec) (Decision, error) {
	s := solver{p: p, costs: p.Costs(codecs)}
	plain, err := s.plain()
	if err != nil {
		return Decision{}, err
	}
	best := plain
	if plain == nil || plain.Period > s.costs.Floor() {
		if lean := s.lean(); best == nil || (lean != nil && lean.Step(p.Micros) < best.Step(p.Micros)) {
			best = lean
		}
	}
	if best == nil {
		return Decision{}, s.noRoom()
	}
	best.Codecs, best.Exposed = codecs, make([]schedule.Nanos, len(codecs))
	best.Bound = p.bound(*best)
	p.deepen(best)
	return *best, nil
}

// solver looks for the least period with given codecs.
type solver struct {
	p       Problem
	costs   schedule.Costs // with nothing recomputed
	ladders []ladder
}

// plain recomputes nothing; nil when that does not fit.
func (s *solver) plain() (*Decision, error) {
	d := &Decision{Costs: s.costs, Recompute: make([][]model.Recompute, len(s.p.Stages))}
	caps := make([]int, len(s.p.Stages))
	for i, st := range s.p.Stages {
		d.Rooms = append(d.Rooms, s.p.room(st, rung{}))
		if caps[i] = d.Rooms[i].InFlight; caps[i] < 1 {
			return nil, nil
		}
	}
	var err error
	d.Warmups, d.Period, err = schedule.MinimalWarmups(s.costs, caps)
	return d, err
}

// lean recomputes where memory asks for it; nil when nothing can be, or not enough.
func (s *solver) lean() *Decision {
	if !slices.ContainsFunc(s.p.Stages, func(st Stage) bool { return st.Layers != nil }) {
		return nil
	}
	s.ladders = make([]ladder, len(s.p.Stages))
	low, high := s.costs.Floor(), s.costs.Floor()+s.costs.RoundTrip()
	for i, st := range s.p.Stages {
		s.ladders[i] = newLadder(st.Layers)
		high += s.ladders[i][len(s.ladders[i])-1].time
	}
	if s.within(high) == nil { // no stage keeps more than one micro-batch there
		return nil
	}
	for low < high {
		if mid := low + (high-low)/2; s.within(mid) != nil {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return s.within(low)
}

// within is the decision that reaches a period with the least recomputation, nil when none
// does: the warm-ups of the period ask for memory, memory for recomputation, and that
// takes time, which may ask for more warm-ups. Each round only adds, so it ends.
func (s *solver) within(period schedule.Nanos) *Decision {
	picks := make([]int, len(s.p.Stages)) // by stage: the rung
	d := &Decision{Period: period, Costs: s.costs}
	for {
		if d.Costs.Floor() > period {
			return nil
		}
		d.Warmups = d.Costs.WarmupsFor(period)
		changed := false
		for i := range picks {
			need := s.pick(i, min(d.Warmups[i]+1, s.p.Micros))
			if need < 0 {
				return nil
			}
			if need > picks[i] {
				picks[i], changed = need, true
			}
		}
		if !changed {
			break
		}
		d.Costs = s.recomputing(picks)
	}
	for i, st := range s.p.Stages {
		d.Rooms = append(d.Rooms, s.p.room(st, s.ladders[i][picks[i]]))
		d.Recompute = append(d.Recompute, s.ladders[i].levels(picks[i], len(st.Layers)))
	}
	return d
}

// pick is the first rung at which so many micro-batches fit a stage, -1 when none does.
func (s *solver) pick(stage, inFlight int) int {
	return slices.IndexFunc(s.ladders[stage], func(r rung) bool { return s.p.room(s.p.Stages[stage], r).InFlight >= inFlight })
}

// recomputing are the costs at rungs.
func (s *solver) recomputing(picks []int) schedule.Costs {
	c := s.costs
	c.Stages = slices.Clone(c.Stages)
	for i, rung := range picks {
		if extra := s.ladders[i][rung].time; s.p.Ahead {
			c.Stages[i].Recompute = extra
		} else {
			c.Stages[i].Input += extra
		}
	}
	return c
}

// noRoom names the first stage without room for one micro-batch and what it takes at least.
func (s *solver) noRoom() error {
	for i, st := range s.p.Stages {
		least := &NoRoom{i, st.SlotBytes, st.RoomBytes}
		fits := false
		for _, r := range newLadder(st.Layers) {
			room := s.p.room(st, r)
			fits = fits || room.InFlight > 0
			least.NeedBytes = min(least.NeedBytes, room.SlotBytes+room.PassBytes)
		}
		if !fits {
			return least
		}
	}
	panic("elastic: unreachable: some stage has no room")
}
