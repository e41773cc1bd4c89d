package elastic

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
)

// Choose finds the least period that memory allows, recomputing and narrowing no more than
// it takes. An error wraps ErrBadProblem or schedule.ErrBadCosts or is a *NoRoom.
func Choose(p Problem) (Decision, error) {
	if err := p.check(); err != nil {
		return Decision{}, err
	}
	d, err := p.solve(make([]Codec, len(p.Boundaries)))
	if err != nil || p.Narrowest == F32 {
		return d, err
	}
	return p.narrow(d)
}

// solve is Choose with given codecs. Recomputing is worth a look only where memory keeps
// the pipeline from the period that its slowest stage or link sets.
func (p Problem) solve(codecs []Codec) (Decision, error) {
	s := solver{p: p, costs: p.costs(codecs)}
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
	best.Codecs = codecs
	best.Bound = p.bound(*best)
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
	d := &Decision{Costs: s.costs, InFlight: make([]int, len(s.p.Stages)), Recompute: make([][]model.Recompute, len(s.p.Stages))}
	for i, st := range s.p.Stages {
		if d.InFlight[i] = s.p.slots(st.RoomBytes, st.SlotBytes); d.InFlight[i] < 1 {
			return nil, nil
		}
	}
	var err error
	d.Warmups, d.Period, err = schedule.MinimalWarmups(s.costs, d.InFlight)
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
		r := s.ladders[i][picks[i]]
		room, each := s.bytes(st, r)
		d.InFlight = append(d.InFlight, s.p.slots(room, each))
		d.Recompute = append(d.Recompute, s.ladders[i].levels(picks[i], len(st.Layers)))
	}
	return d
}

// pick is the first rung at which so many micro-batches fit a stage, -1 when none does.
func (s *solver) pick(stage, inFlight int) int {
	st := s.p.Stages[stage]
	return slices.IndexFunc(s.ladders[stage], func(r rung) bool {
		room, each := s.bytes(st, r)
		return room >= 0 && (each <= 0 || room/each >= int64(inFlight))
	})
}

// bytes are the room of a stage at a rung and what each micro-batch takes of it. What is
// recomputed ahead is all there for one micro-batch.
func (s *solver) bytes(st Stage, r rung) (room, each int64) {
	room, each = st.RoomBytes-r.pass, st.SlotBytes-r.freed
	if s.p.Ahead {
		room -= r.freed
	}
	return room, each
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
			room, each := s.bytes(st, r)
			fits = fits || room >= each
			least.NeedBytes = min(least.NeedBytes, each+st.RoomBytes-room)
		}
		if !fits {
			return least
		}
	}
	panic("elastic: unreachable: some stage has no room")
}
