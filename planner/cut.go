package planner

import (
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/partition"
	"pnode/planner/sim"
)

// maxInFlight bounds the micro-batches in flight on a stage, as the model's slots do.
const maxInFlight = 4096

// pipe is one replica: units in pipeline order with their layers.
type pipe struct {
	units   []int
	ends    []int // by stage: the layer after its last
	costs   schedule.Costs
	caps    []int // by stage: micro-batches in flight that fit
	warmups []int
	period  schedule.Nanos
}

// layers is the range of a stage.
func (p *pipe) layers(stage int) (first, end int) {
	if stage > 0 {
		first = p.ends[stage-1]
	}
	return first, p.ends[stage]
}

// simulated is the pipe for the simulator.
func (p *pipe) simulated(micros int) sim.Pipeline {
	return sim.Pipeline{Costs: p.costs, Warmups: p.warmups, Micros: micros}
}

// relaxPercent are longer periods that a cut may have: with few micro-batches a step it
// pays to have them pass all stages sooner at the price of a longer period.
var relaxPercent = []schedule.Nanos{10, 30, 100}

// relaxUpTo is the number of units in the cluster up to which longer periods are tried.
const relaxUpTo = 64

// cut gives the layers to units in that order. How many micro-batches a stage keeps in
// flight depends on the cut and the cut on the memory that they take, so it tries: one
// in flight, which leaves layers where the speed is; if then memory keeps the pipeline
// from its best period, as many as 1F1B keeps; and as many as full overlap wants. It
// keeps the best for a share of that many micro-batches.
func (c *cluster) cut(units []int, micros int) (*pipe, error) {
	n := len(units)
	t := cutter{c: c, units: units, micros: micros}
	t.problem = partition.Problem{Fixed: c.fixedFor(n), Saved: c.saved, SlotBytes: c.slotBytes, Devices: make([]partition.Device, n)}
	for i, u := range units {
		t.problem.Devices[i] = partition.Device{Before: c.units[u].micro, FreeBytes: c.units[u].free}
		if i < n-1 {
			t.problem.Devices[i].Boundary = c.occupation(u, units[i+1])
		}
	}
	if err := t.try(slices.Repeat([]int{1}, n)); err != nil {
		return nil, err
	}
	if t.best.period == t.best.costs.Floor() {
		return t.best, nil
	}
	full, _, err := schedule.MinimalWarmups(t.best.costs, nil)
	if err != nil {
		return nil, err
	}
	usual := schedule.DepthWarmups(n, 1)
	for i := range full {
		full[i]++
		usual[i]++
	}
	_, _ = t.try(usual), t.try(full) // that more does not fit is no error: best stands
	return t.best, nil
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

// try cuts for so many micro-batches in flight by stage.
func (t *cutter) try(inFlight []int) error {
	for i := range t.problem.Devices {
		t.problem.Devices[i].InFlight = max(1, min(inFlight[i], t.c.in.Run.Train.Micros, maxInFlight))
	}
	ends, period, err := partition.Split(t.problem)
	if err != nil {
		return err
	}
	if err := t.take(ends); err != nil {
		return err
	}
	alone := t.best.costs.RoundTrip()
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
// between two units.
func (c *cluster) occupation(u, v int) []schedule.Nanos {
	forth, back := c.link(u, v), c.link(v, u)
	times := make([]schedule.Nanos, c.layers())
	for l, bytes := range c.boundary {
		times[l] = max(forth.Hop(bytes).Transfer, back.Hop(bytes).Transfer)
	}
	return times
}

// newPipe times given layers on given units and derives the warm-ups.
func (c *cluster) newPipe(units, ends []int) (*pipe, error) {
	p := c.timePipe(units, ends)
	for s, u := range units {
		first, end := p.layers(s)
		if p.caps[s] < 1 {
			need := c.fixedIn(first, end) + c.saved[end] - c.saved[first] + c.slotBytes
			return nil, &partition.NoFit{Device: s, First: first, End: end, NeedBytes: need, FreeBytes: c.units[u].free}
		}
	}
	var err error
	if p.warmups, p.period, err = schedule.MinimalWarmups(p.costs, p.caps); err != nil {
		return nil, fmt.Errorf("planner: time %d stages: %w", len(units), err)
	}
	return p, nil
}

// timePipe is newPipe without the warm-ups.
func (c *cluster) timePipe(units, ends []int) *pipe {
	p := &pipe{units: units, ends: ends, caps: make([]int, len(units))}
	p.costs.Stages = make([]schedule.StageTime, len(units))
	for s, u := range units {
		first, end := p.layers(s)
		t := c.units[u].times[end].Sub(c.units[u].times[first])
		p.costs.Stages[s] = schedule.StageTime{Forward: t.Forward, Input: t.Input, Weight: t.Weight, Update: t.Update}
		p.caps[s] = c.inFlightCap(u, first, end)
		if s > 0 {
			bytes := c.boundary[first-1]
			p.costs.Boundaries = append(p.costs.Boundaries, schedule.Boundary{
				Activation: c.link(units[s-1], u).Hop(bytes), Gradient: c.link(u, units[s-1]).Hop(bytes),
			})
		}
	}
	return p
}

// inFlightCap is how many micro-batches a unit can keep with those layers. Where all of
// the step's fit, there is no cap.
func (c *cluster) inFlightCap(u, first, end int) int {
	room := c.units[u].free - c.fixedIn(first, end)
	each := c.saved[end] - c.saved[first] + c.slotBytes
	if room < each {
		return 0
	}
	slots := int64(maxInFlight)
	if each > 0 {
		slots = min(slots, room/each)
	}
	if slots >= int64(c.in.Run.Train.Micros) {
		return math.MaxInt32
	}
	return int(slots)
}
