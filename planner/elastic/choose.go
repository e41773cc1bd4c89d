package elastic

import (
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Choose finds the least period that memory allows with the narrowest codecs, recomputing no
// more than it takes. An error wraps ErrBadProblem or schedule.ErrBadCosts or is a *NoRoom.
func Choose(p Problem) (Decision, error) {
	if err := p.check(); err != nil {
		return Decision{}, err
	}
	return p.solve(slices.Repeat([]plan.Codec{p.narrowest()}, len(p.Boundaries)))
}

// solve is Choose with given codecs. Recomputing is worth a look only where memory keeps
// the pipeline from the period that its slowest stage or link sets, and doing so ahead of the
// gradient only where it would still not reach that.
func (p Problem) solve(codecs []plan.Codec) (Decision, error) {
	s := newSolver(p, codecs)
	best, err := s.plain()
	if err != nil {
		return Decision{}, err
	}
	for _, ahead := range []bool{false, true} {
		if best != nil && best.Period <= s.costs.Floor() {
			break
		}
		if d := s.lean(ahead); best == nil || (d != nil && d.Step(p.Micros) < best.Step(p.Micros)) {
			best = d
		}
	}
	if best == nil {
		return Decision{}, s.noRoom()
	}
	return *best, nil
}

// solver looks for the least period with given codecs.
type solver struct {
	p       Problem
	codecs  []plan.Codec
	costs   schedule.Costs // with nothing recomputed but what is given
	ladders []ladder
	all     [][][]option // by stage, rung and layers ahead
	// choices are those of all that are looked at.
	choices [][][]option
}

func newSolver(p Problem, codecs []plan.Codec) *solver {
	s := &solver{p: p, codecs: codecs, costs: p.Costs(codecs)}
	for i, st := range p.Stages {
		s.ladders = append(s.ladders, newLadder(st.Layers))
		s.all = append(s.all, s.options(i))
	}
	s.choices = s.all
	return s
}

// plain recomputes nothing; nil when that does not fit.
func (s *solver) plain() (*Decision, error) {
	picks, caps := make([]option, len(s.p.Stages)), make([]int, len(s.p.Stages))
	for i := range picks {
		picks[i] = s.all[i][0][0]
		if caps[i] = picks[i].InFlight; caps[i] < 1 {
			return nil, nil
		}
	}
	_, period, err := schedule.MinimalWarmups(s.costs, caps)
	if err != nil {
		return nil, err
	}
	return s.decision(period, picks), nil
}

// lean recomputes where memory asks for it, ahead of the gradient too where that is asked for;
// nil when nothing can be, or not enough.
func (s *solver) lean(ahead bool) *Decision {
	if !ahead {
		s.choices = inside(s.all)
		defer func() { s.choices = s.all }()
	}
	if !slices.ContainsFunc(s.choices, func(st [][]option) bool { return len(st) > 1 || len(st[0]) > 1 }) {
		return nil
	}
	low, high := s.costs.Floor(), s.costs.Floor()+s.costs.RoundTrip()
	for _, l := range s.ladders {
		high += l[len(l)-1].time
	}
	reached := func(period schedule.Nanos) bool { return s.reaches(len(s.p.Stages)-1, nil, period) }
	if !reached(high) { // no stage keeps more than one micro-batch there
		return nil
	}
	for low < high {
		if mid := low + (high-low)/2; reached(mid) {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return s.decision(low, s.frugal(low))
}

// inside are the options that have nothing ahead of the gradient.
func inside(all [][][]option) [][][]option {
	out := make([][][]option, len(all))
	for i, rungs := range all {
		for _, rung := range rungs {
			out[i] = append(out[i], rung[:1])
		}
	}
	return out
}

// decision is that of options that reach a period, with all that memory allows beyond it:
// late messages, and recomputation ahead of the gradient.
func (s *solver) decision(period schedule.Nanos, picks []option) *Decision {
	d := &Decision{Period: period, Codecs: s.codecs, Exposed: make([]schedule.Nanos, len(s.codecs)), Ahead: make([]int, len(picks))}
	d.Costs = s.running(picks)
	d.Warmups = d.Costs.WarmupsFor(period)
	d.Bound = s.p.bound(*d)
	s.deepen(d, picks)
	for i := range picks {
		picks[i] = s.fill(i, picks[i], d.Warmups[i])
		d.Rooms, d.Ahead[i] = append(d.Rooms, picks[i].Room), picks[i].layers
		d.Recompute = append(d.Recompute, s.ladders[i].levels(picks[i].rung, len(s.p.Stages[i].Layers)))
	}
	d.Costs = s.running(picks)
	return d
}

// running are the costs with options.
func (s *solver) running(picks []option) schedule.Costs {
	c := s.costs
	c.Stages = slices.Clone(c.Stages)
	for i, o := range picks {
		c.Stages[i] = o.time
	}
	return c
}

// noRoom names the first stage without room for one micro-batch and what it takes at least.
func (s *solver) noRoom() error {
	for i, st := range s.p.Stages {
		least := &NoRoom{i, st.SlotBytes, st.RoomBytes}
		fits := false
		for _, o := range slices.Concat(s.all[i]...) {
			fits = fits || o.InFlight > 0
			least.NeedBytes = min(least.NeedBytes, o.SlotBytes+o.PassBytes)
		}
		if !fits {
			return least
		}
	}
	panic("elastic: unreachable: some stage has no room")
}
