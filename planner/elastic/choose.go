package elastic

import (
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
)

// Choose finds the least period that memory allows with the narrowest codecs, and recomputes no
// more than that takes. An error wraps ErrBadProblem or schedule.ErrBadCosts or is a *NoRoom.
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
	switch {
	case err != nil:
		return Decision{}, err
	case best != nil && best.Period <= s.costs.Floor():
		return *best, nil
	}
	for i, st := range p.Stages {
		s.open(i, newFrontier(st.Layers))
	}
	for _, ahead := range []bool{false, true} {
		if best != nil && best.Period <= s.costs.Floor() {
			break
		}
		if d := s.recompute(ahead, best); best == nil || (d != nil && d.Step(p.Micros) < best.Step(p.Micros)) {
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
	p      Problem
	codecs []plan.Codec
	costs  schedule.Costs // with nothing recomputed but what is given
	// frontiers hold by stage what it may recompute, all the options by stage, point of the frontier
	// and layers ahead, choices the options that may be taken now, and useful those of them that no other one is as good as.
	// Until recompute they have point 0 alone.
	frontiers            []frontier
	all, choices, useful [][][]option
}

func newSolver(p Problem, codecs []plan.Codec) *solver {
	n := len(p.Stages)
	s := &solver{p: p, codecs: codecs, costs: p.Costs(codecs), frontiers: make([]frontier, n), all: make([][][]option, n)}
	for i := range p.Stages {
		s.open(i, make(frontier, 1))
	}
	s.choices = s.all
	return s
}

// open has the options of a stage at the points of a frontier. The last stage waits for no gradient.
func (s *solver) open(i int, f frontier) {
	s.frontiers[i] = f
	s.all[i] = make([][]option, len(f))
	for point := range f {
		s.all[i][point] = s.p.optionsAt(s.p.Stages[i], f, point, i < len(s.p.Stages)-1)
	}
}

// plain decides with nothing recomputed; nil when that does not fit.
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

// recompute decides with recomputation where memory asks for it, and ahead of the gradient too where
// that is asked for; nil when nothing can be recomputed, or not enough. No period longer than a decision that is known, which
// recomputes no more than these options do, is looked at.
func (s *solver) recompute(ahead bool, known *Decision) *Decision {
	if !ahead { // of each point the option with nothing ahead of the gradient
		s.choices = make([][][]option, len(s.all))
		for i, points := range s.all {
			for _, options := range points {
				s.choices[i] = append(s.choices[i], options[:1])
			}
		}
		defer func() { s.choices = s.all }()
	}
	if !slices.ContainsFunc(s.choices, func(st [][]option) bool { return len(st) > 1 || len(st[0]) > 1 }) {
		return nil
	}
	s.useful = useful(s.choices)
	low, high := s.costs.Floor(), s.costs.Floor()+s.costs.RoundTrip()
	for _, l := range s.frontiers {
		high += l[len(l)-1].time
	}
	reached := func(period schedule.Nanos) bool { return s.feasible(len(s.p.Stages)-1, nil, period) }
	switch {
	case known != nil && !reached(known.Period-1):
		low, high = known.Period, known.Period
	case known != nil:
		high = known.Period - 1
	case !reached(high): // no stage keeps more than one micro-batch there
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

// decision returns the decision for options that reach a period, with all that memory allows beyond
// it: late messages, and recomputation ahead of the gradient.
func (s *solver) decision(period schedule.Nanos, picks []option) *Decision {
	d := &Decision{Period: period, Codecs: s.codecs, Exposed: make([]schedule.Nanos, len(s.codecs)), Ahead: make([]int, len(picks))}
	d.Rooms, d.Recompute = make([]Room, 0, len(picks)), make([][]model.Recompute, 0, len(picks))
	d.Costs = s.running(picks)
	d.Warmups = d.Costs.WarmupsFor(period)
	d.Bound = s.p.bound(*d)
	s.deepen(d, picks)
	for i := range picks {
		// As much ahead of the gradient as there is room for: it lets late gradients show less, and
		// costs nothing but memory that nothing else has a use for.
		for _, more := range s.choices[i][picks[i].point] {
			if more.layers > picks[i].layers && s.p.holds(more.Room, d.Warmups[i]) {
				picks[i] = more
			}
		}
		d.Rooms, d.Ahead[i] = append(d.Rooms, picks[i].Room), picks[i].layers
		d.Recompute = append(d.Recompute, s.frontiers[i].levels(picks[i].point, len(s.p.Stages[i].Layers)))
	}
	d.Costs = s.running(picks)
	return d
}

// running returns the costs with options.
func (s *solver) running(picks []option) schedule.Costs {
	c := s.costs
	c.Stages = slices.Clone(c.Stages)
	for i, o := range picks {
		c.Stages[i] = o.time
	}
	return c
}

// noRoom names the first stage without room for one micro-batch, and what that takes at least.
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

// UsualMargin is how late, in percent of a link's round trip, a message may be on links whose
// jitter is measured: what a connection needs to fill a gap that a lost or held packet left.
// Without a margin each such gap is added to the step, since no stage ever catches up.
const UsualMargin = 25

// marginParts says how finely a margin is reduced where memory is short of it.
const marginParts = 8

// deepen raises the warm-ups of a decision so that every message may be late by the problem's
// margin, as far as memory allows. The period stays.
func (s *solver) deepen(d *Decision, picks []option) {
	for part := marginParts; part > 0; part-- {
		late := d.Costs
		late.Boundaries = slices.Clone(late.Boundaries)
		for i := range late.Boundaries {
			b := &late.Boundaries[i]
			percent := schedule.Nanos(s.p.MarginPercent * part)
			b.Activation.Latency += b.Activation.Latency * percent / (100 * marginParts)
			b.Gradient.Latency += b.Gradient.Latency * percent / (100 * marginParts)
		}
		warmups, fit := late.WarmupsFor(d.Period), true
		for i, o := range picks {
			fit = fit && s.p.holds(o.Room, warmups[i])
		}
		if fit {
			d.Warmups = warmups
			return
		}
	}
}
