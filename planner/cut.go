package planner

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/elastic"
	"pnode/planner/layout"
	"pnode/planner/partition"
	"pnode/planner/sim"
)

// pipe is one replica: units in pipeline order with their layers.
type pipe struct {
	units []int
	ends  []int // by stage: the layer after its last
	// problem is what the decision answers.
	problem elastic.Problem
	elastic.Decision
}

// layers is the range of a stage.
func (p *pipe) layers(stage int) (first, end int) {
	if stage > 0 {
		first = p.ends[stage-1]
	}
	return first, p.ends[stage]
}

// recomputes tells whether any stage computes something again.
func (p *pipe) recomputes() bool {
	return slices.ContainsFunc(p.Recompute, func(l []model.Recompute) bool { return l != nil })
}

// simulated is the pipe for the simulator.
func (p *pipe) simulated(micros int) sim.Pipeline {
	return sim.Pipeline{Costs: p.Costs, Warmups: p.Warmups, Micros: micros}
}

// relaxPercent are longer periods that a cut may have: with few micro-batches a step it
// pays to have them pass all stages sooner at the price of a longer period.
var relaxPercent = []schedule.Nanos{10, 30, 100}

// relaxUpTo is the number of units in the cluster up to which longer periods are tried.
const relaxUpTo = 64

// cut gives the layers to units in that order. How many micro-batches a stage keeps in
// flight depends on the cut and the cut on the memory that they take, so it tries: one
// in flight, which leaves layers where the speed is; if then memory keeps the pipeline
// from its best period, as many as 1F1B keeps; and as many as full overlap wants. Where
// that does not help enough it tries the same with leaner layers. It keeps the best for a
// share of that many micro-batches.
func (c *cluster) cut(units []int, micros int) (*pipe, error) {
	t := cutter{c: c, units: units, micros: micros, problem: c.splitProblem(units)}
	err := t.tryDepths()
	for level := range c.books().MostLevels() {
		if t.best != nil && t.best.Period == t.best.Costs.Floor() && !t.best.recomputes() {
			break
		}
		for i, u := range units {
			if lean := c.ledger(u).Levels(); level < len(lean) {
				t.problem.Devices[i].Saved, t.problem.Devices[i].Before = lean[level].SavedFor(), c.leanTimes(level, u)
			}
		}
		err = t.tryDepths()
	}
	if t.best == nil {
		return nil, err
	}
	return t.best, nil
}

// splitProblem is how layers could be given to units in that order, with one micro-batch in
// flight.
func (c *cluster) splitProblem(units []int) partition.Problem {
	n := len(units)
	p := partition.Problem{SlotBytes: c.books().Slot(), Devices: make([]partition.Device, n)}
	fixed := map[model.Storage][]int64{}
	for i, u := range units {
		storage := c.units[u].Storage
		if fixed[storage] == nil {
			fixed[storage] = c.ofCopies(c.ledger(u).FixedFor(n, false))
		}
		p.Devices[i] = partition.Device{Before: c.units[u].Micro, Fixed: fixed[storage], Saved: c.ledger(u).SavedFor(), FreeBytes: c.units[u].FreeBytes, InFlight: 1}
		if i < n-1 {
			p.Devices[i].Boundary = c.occupation(u, units[i+1])
		}
		if c.site.IsAway(u) {
			c.divide(&p.Devices[i], u, n)
		}
	}
	return p
}

// divide gives a device that keeps optimizer state in host memory its own sums of what layers of
// so many stages take, and those of the host.
func (c *cluster) divide(d *partition.Device, unit, stages int) {
	d.Fixed = c.ofCopies(c.ledger(unit).FixedFor(stages, true))
	d.Beside, d.BesideBytes = c.ofCopies(c.books().HostFor(stages)), c.units[unit].HostBytes
	d.FreeBytes -= int64(c.order.copies) * c.books().Window(0, c.layers())
}

// ofCopies are sums of bytes for all copies of the model that a lane has.
func (c *cluster) ofCopies(sums []int64) []int64 {
	sums = slices.Clone(sums)
	for l := range sums {
		sums[l] *= int64(c.order.copies)
	}
	return sums
}

// crowded tells whether layers would be cut for a shorter period if memory were no matter.
func (c *cluster) crowded(p *pipe) bool {
	problem := c.splitProblem(p.units)
	_, period, err := partition.Split(problem)
	for i := range problem.Devices {
		problem.Devices[i].FreeBytes = math.MaxInt64 / 4
	}
	_, least, fail := partition.Split(problem)
	return fail == nil && (err != nil || least < period)
}

// cutter keeps the best pipe so far.
type cutter struct {
	c       *cluster
	units   []int
	micros  int
	problem partition.Problem
	best    *pipe
	least   schedule.Nanos // estimate of best
}

// tryDepths tries several numbers of micro-batches in flight. The error says why not even
// one fits everywhere.
func (t *cutter) tryDepths() error {
	n := len(t.units)
	if !t.c.order.elastic() {
		inFlight, err := t.c.inFlight(n, t.micros)
		if err != nil || t.try(inFlight) == nil {
			return err
		}
	}
	err := t.try(slices.Repeat([]int{1}, n))
	if !t.c.order.elastic() {
		if err != nil { // programs tell exactly whether it fits
			for i := range t.problem.Devices {
				t.problem.Devices[i].FreeBytes = math.MaxInt64 / 4
			}
			err = t.try(slices.Repeat([]int{1}, n))
		}
		return err
	}
	if err != nil {
		return err
	}
	if t.best.Period == t.best.Costs.Floor() {
		return nil
	}
	full, _, err := schedule.MinimalWarmups(t.best.Costs, nil)
	if err != nil {
		return err
	}
	usual := schedule.DepthWarmups(n, 1)
	for i := range full {
		full[i]++
		usual[i]++
	}
	_, _ = t.try(usual), t.try(full) // that more does not fit is no error: best stands
	return nil
}

// try cuts for so many micro-batches in flight by stage.
func (t *cutter) try(inFlight []int) error {
	for i := range t.problem.Devices {
		t.problem.Devices[i].InFlight = max(1, min(inFlight[i], t.c.in.Run.Train.Micros))
	}
	ends, period, err := partition.Split(t.problem)
	if err != nil {
		return err
	}
	if err := t.take(ends); err != nil {
		return err
	}
	alone := t.best.Costs.RoundTrip()
	if len(t.units) == 1 || len(t.c.units) > relaxUpTo || alone*8 < schedule.Nanos(t.micros)*period {
		return nil // filling and draining hardly show
	}
	for _, percent := range relaxPercent {
		if ends := partition.Within(t.problem, period+period*percent/100); ends != nil {
			if err := t.take(ends); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *cutter) take(ends []int) error {
	p, err := t.c.newPipe(t.units, ends)
	if err != nil {
		return err
	}
	if estimate := p.simulated(t.micros).Estimate(); t.best == nil || estimate < t.least {
		t.best, t.least = p, estimate
	}
	return nil
}

// occupation is by layer how long its output or that output's gradient occupies the link
// between two units, in the narrowest codec there is.
func (c *cluster) occupation(u, v int) []schedule.Nanos {
	forth, back := c.link(u, v), c.link(v, u)
	times := make([]schedule.Nanos, c.layers())
	for l := range times {
		bytes := c.leastBytes(c.books().Boundary(l))
		times[l] = max(forth.Hop(bytes).Transfer, back.Hop(bytes).Transfer)
	}
	return times
}

// newPipe times given layers on given units and derives what is in flight and what is
// recomputed.
func (c *cluster) newPipe(units, ends []int) (*pipe, error) {
	return c.choosePipe(units, ends, c.problem(&pipe{units: units, ends: ends}))
}

// choosePipe is newPipe with given times.
func (c *cluster) choosePipe(units, ends []int, problem elastic.Problem) (*pipe, error) {
	p := &pipe{units: units, ends: ends}
	for s, u := range units {
		first, end := p.layers(s)
		if need := c.books().Host(first, end); c.site.IsAway(u) && need > c.units[u].HostBytes {
			return nil, &partition.NoFit{Device: s, First: first, End: end, NeedBytes: need, FreeBytes: c.units[u].HostBytes, Beside: true}
		}
	}
	choice, err := elastic.Choose(problem)
	var no *elastic.NoRoom
	if short := errors.As(err, &no); c.books().MostLevels() > 0 && (short || err == nil && choice.Bound.Memory()) {
		for s, u := range units {
			first, end := p.layers(s)
			problem.Stages[s].Layers = c.ledger(u).Choices(c.units[u].Speed, first, end)
		}
		choice, err = elastic.Choose(problem)
	}
	if errors.As(err, &no) {
		first, end := p.layers(no.Stage)
		return nil, &partition.NoFit{
			Device: no.Stage, First: first, End: end,
			NeedBytes: c.site.Fixed(units[no.Stage], first, end) + no.NeedBytes, FreeBytes: c.units[units[no.Stage]].FreeBytes,
		}
	}
	if err != nil {
		return nil, fmt.Errorf("planner: time %d stages: %w", len(units), err)
	}
	p.problem, p.Decision = problem, choice
	return p, nil
}

// problem is a pipe before anything is chosen.
func (c *cluster) problem(p *pipe) elastic.Problem {
	out := elastic.Problem{Stages: make([]elastic.Stage, len(p.units)), Micros: c.in.Run.Train.Micros, MarginPercent: elastic.UsualMargin}
	out.Widest, out.Narrowest = c.in.Run.CodecBounds()
	for s, u := range p.units {
		first, end := p.layers(s)
		t := c.units[u].Times[end].Sub(c.units[u].Times[first])
		out.Stages[s] = elastic.Stage{
			Time:      schedule.StageTime{Forward: t.Forward, Input: t.Input, Weight: t.Weight, Update: c.site.Update(u, first, end)},
			RoomBytes: c.units[u].FreeBytes - c.site.Fixed(u, first, end),
			SlotBytes: c.ledger(u).Saved(first, end) + c.books().Slot(),
		}
		out.Stages[s].Given = c.ledger(u).Given(c.units[u].Speed, first, end)
		if !c.order.elastic() {
			out.Stages[s].RoomBytes = math.MaxInt64 / 4 // programs tell
		}
		if s > 0 {
			out.Boundaries = append(out.Boundaries, elastic.Boundary{
				Elements: c.site.Elements(first - 1), Forth: c.link(p.units[s-1], u), Back: c.link(u, p.units[s-1]),
			})
		}
	}
	return out
}

// leastBytes is what a tensor of so many bytes takes on a link at least.
func (c *cluster) leastBytes(bytes int64) int64 {
	_, narrowest := c.in.Run.Train.Codec.Bounds()
	return narrowest.Bytes(layout.Elements(bytes))
}
