package planner

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/elastic"
	"pnode/planner/partition"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// pipe is the cut of one replica group: devices in pipeline order with their layers, and what 1F1B
// does with it.
type pipe struct {
	devices []int
	ends    []int // by stage: the layer after its last
	// problem is what the decision answers.
	problem elastic.Problem
	elastic.Decision
	// passes has by how many micro-batches it takes those of its stages, where that was simulated.
	passes map[int][]schedule.Interval
}

// layers returns the range of a stage.
func (p *pipe) layers(stage int) (first, end int) {
	if stage > 0 {
		first = p.ends[stage-1]
	}
	return first, p.ends[stage]
}

// lengths returns by stage how many layers it has.
func (p *pipe) lengths() (layers []int) {
	for s := range p.devices {
		first, end := p.layers(s)
		layers = append(layers, end-first)
	}
	return layers
}

// simulated returns the pipe for the simulator.
func (p *pipe) simulated(micros int) sim.Pipeline {
	return sim.Pipeline{Costs: p.Costs, Warmups: p.Warmups, Micros: micros}
}

// cutter cuts layers for devices under a schedule, with a cost model.
type cutter struct {
	*problem
	*cost.Model
	order ordering
}

func (s *search) cutter(k *candidate) cutter { return cutter{s.problem, k.model, k.order} }

// relaxPercent are longer periods that a cut may have: with few micro-batches a step it
// pays to have them pass all stages sooner at the price of a longer period.
var relaxPercent = []schedule.Nanos{10, 30, 100}

// relaxUpTo is the number of devices of the problem up to which longer periods are tried.
const relaxUpTo = 64

// cutKey has all that a cut depends on within a search and those that go on from it: a pipe that is shared by candidates
// does not change.
type cutKey struct {
	model         *cost.Model
	devices, ends packed // no ends where these are looked for
	exchanging    packed // devices of all replicas where their exchanges count
	micros        int
	elastic       bool
}

// cutMade holds a pipe, or why there is none.
type cutMade struct {
	pipe *pipe
	err  error
}

// once returns what has been made for a key before, or else makes it.
func (s *search) once(key cutKey, build func() (*pipe, error)) (*pipe, error) {
	made, known := s.cuts[key]
	if !known {
		made.pipe, made.err = build()
		s.cuts[key] = made
	}
	return made.pipe, made.err
}

// cut gives the layers to devices in that order. How many micro-batches a stage keeps in
// flight depends on the cut and the cut on the memory that they take, so it tries: one
// in flight, which leaves layers where the speed is; if then memory keeps the pipeline
// from its best period, as many as 1F1B keeps; and as many as full overlap wants. Where
// that does not help enough it tries the same with more recomputed. It keeps the best for a
// share of that many micro-batches. Of replicas whose exchanges count all says the devices.
func (s *search) cut(k *candidate, devices, all []int, micros int) (*pipe, error) {
	key := cutKey{model: k.model, devices: pack(devices), micros: micros, elastic: k.order.elastic()}
	if all != nil {
		key.exchanging = pack(all)
	}
	return s.once(key, func() (*pipe, error) { return s.cutAnew(k, devices, all, micros) })
}

func (s *search) cutAnew(k *candidate, devices, all []int, micros int) (*pipe, error) {
	c := s.cutter(k)
	a := attempts{cutter: c, devices: devices, micros: micros, problem: c.partition(devices)}
	if all != nil {
		a.exchange = c.exchanges(devices, all)
	}
	for i := range devices {
		a.spread(i)
	}
	if !k.order.elastic() {
		var err error
		if a.inFlight, err = s.inFlight(k.order, len(devices), micros); err != nil {
			return nil, err
		}
	}
	err := a.tryDepths()
	for level := range c.Memory.MostLevels() {
		if a.best != nil && a.best.Period == a.best.Costs.Floor() && !slices.ContainsFunc(a.best.Recompute, func(l []model.Recompute) bool { return l != nil }) {
			break
		}
		for i, d := range devices {
			if levels := c.On(d).Levels(); level < len(levels) {
				a.problem.Devices[i].Saved, a.problem.Devices[i].Before = levels[level].Saved, c.Recomputed(d, level)
				a.spread(i)
			}
		}
		err = a.tryDepths()
	}
	if a.best == nil {
		return nil, err
	}
	return c.deepened(a.best)
}

// attempts keeps the best pipe so far.
type attempts struct {
	cutter
	devices  []int
	micros   int
	inFlight []int // by stage, under schedules whose programs say it
	problem  partition.Problem
	// exchange has by stage a prefix over layers of what exchanges between replicas take once a step; nil where they do not count.
	exchange [][]schedule.Nanos
	best     *pipe
	least    schedule.Nanos // estimate of best
	taken    [][]int        // ends of all so far
}

// spread adds to the times of a stage's layers for a micro-batch what their exchanges between replicas take of a step, spread over all of them:
// a stage's exchanges follow its own passes.
func (a *attempts) spread(stage int) {
	if a.exchange == nil {
		return
	}
	place := &a.problem.Devices[stage]
	place.Before = slices.Clone(place.Before)
	for l, sum := range a.exchange[stage] {
		place.Before[l] += sum / schedule.Nanos(a.micros)
	}
}

// exchanges returns by stage of one of several replicas a prefix over layers of what their exchanges take where all are cut alike: each device
// sends its sums of gradients and its part of the parameters to those that have the same layers.
func (c cutter) exchanges(devices, all []int) [][]schedule.Nanos {
	stages, layers := len(devices), c.layers()
	out := make([][]schedule.Nanos, stages)
	whole, replicas := c.Memory.Params(0, layers), int64(len(all)/stages)
	for i, d := range devices {
		took := schedule.Nanos(0) // for all layers
		for other := i; other < len(all); other += stages {
			if all[other] != d {
				took = min(took+c.link(d, all[other]).Hop(int64(c.Memory.Parts().Exchanged+1)*whole/replicas).Transfer, cost.Longest)
			}
		}
		out[i] = make([]schedule.Nanos, layers+1)
		for l := range out[i] {
			out[i][l] = cost.MulDiv(took, schedule.Nanos(c.Memory.Params(0, l)), schedule.Nanos(whole))
		}
	}
	return out
}

// tryDepths tries several numbers of micro-batches in flight. The error says why not even
// one fits everywhere.
func (a *attempts) tryDepths() error {
	one := slices.Repeat([]int{1}, len(a.devices))
	if !a.order.elastic() {
		if a.try(a.inFlight) == nil {
			return nil
		}
		err := a.try(one)
		if err != nil { // programs say exactly whether it fits
			for i := range a.problem.Devices {
				a.problem.Devices[i].FreeBytes = math.MaxInt64 / 4
			}
			err = a.try(one)
		}
		return err
	}
	if err := a.try(one); err != nil || a.best.Period == a.best.Costs.Floor() {
		return err
	}
	full, _, err := schedule.MinimalWarmups(a.best.Costs, nil)
	if err != nil {
		return err
	}
	usual := schedule.DepthWarmups(len(a.devices), 1)
	for i := range full {
		full[i]++
		usual[i]++
	}
	_, _ = a.try(usual), a.try(full) // that more does not fit is no error: best stands
	return nil
}

// try cuts for so many micro-batches in flight by stage.
func (a *attempts) try(inFlight []int) error {
	for i := range a.problem.Devices {
		a.problem.Devices[i].InFlight = max(1, min(inFlight[i], a.in.Run.Train.Micros))
	}
	ends, period, err := partition.Split(a.problem)
	if err == nil {
		err = a.take(ends)
	}
	if err != nil {
		return err
	}
	if len(a.devices) == 1 || len(a.cutter.problem.devices) > relaxUpTo || a.best.Costs.RoundTrip()*8 < schedule.Nanos(a.micros)*period {
		return nil // filling and draining hardly show
	}
	for _, percent := range relaxPercent {
		if ends := partition.Within(a.problem, period+period*percent/100); ends != nil {
			if err := a.take(ends); err != nil {
				return err
			}
		}
	}
	return nil
}

// take keeps a cut where it is better than the best one.
func (a *attempts) take(ends []int) error {
	if slices.ContainsFunc(a.taken, func(e []int) bool { return slices.Equal(e, ends) }) {
		return nil
	}
	p, err := a.pipe(a.devices, ends)
	if err != nil {
		return err
	}
	a.taken = append(a.taken, ends)
	estimate, exchange, first := p.simulated(a.micros).Estimate(), schedule.Nanos(0), 0
	for s, sums := range a.exchange {
		exchange, first = max(exchange, sums[ends[s]]-sums[first]), ends[s]
	}
	if estimate += exchange; a.best == nil || estimate < a.least {
		a.best, a.least = p, estimate
	}
	return nil
}

// partition returns how layers could be given to devices in that order, with one micro-batch in
// flight. Where a replica group has several copies of the model, sums of bytes are for all of them.
func (c cutter) partition(devices []int) partition.Problem {
	n, copies := len(devices), int64(c.order.copies)
	all := func(sums []int64) []int64 {
		sums = slices.Clone(sums)
		for l := range sums {
			sums[l] *= copies
		}
		return sums
	}
	out := partition.Problem{SlotBytes: c.Memory.Slot(), Devices: make([]partition.Device, n)}
	fixed, exchanging := map[model.Storage][]int64{}, map[model.Storage][]int64{}
	exchanged, more := c.Memory.ExchangeFor(n)
	for i, d := range devices {
		at, memory := c.Devices[d], c.On(d)
		if fixed[at.Storage] == nil {
			fixed[at.Storage] = all(memory.FixedFor(n, false))
		}
		place := partition.Device{Before: at.Micro, Fixed: fixed[at.Storage], Saved: memory.SavedFor(), FreeBytes: at.FreeBytes, InFlight: 1}
		if i < n-1 { // how long an output or its gradient occupies the link, in the narrowest codec
			forth, back := c.link(d, devices[i+1]), c.link(devices[i+1], d)
			place.Boundary = make([]schedule.Nanos, c.layers())
			for l := range place.Boundary {
				bytes := c.leastBytes(c.Memory.Boundary(l))
				place.Boundary[l] = max(forth.Hop(bytes).Transfer, back.Hop(bytes).Transfer)
			}
		}
		if at.CopyBytesPerS == 0 && c.Memory.Parts().Exchanged > 0 {
			if exchanging[at.Storage] == nil {
				sums := slices.Clone(place.Fixed)
				for l, sum := range more {
					sums[l] += copies * sum
				}
				exchanging[at.Storage] = sums
			}
			place.Fixed = exchanging[at.Storage]
			place.FreeBytes -= copies * exchanged
		}
		if c.Offloads(d) {
			place.Fixed = all(memory.FixedFor(n, true))
			place.Host, place.HostBytes = all(c.Memory.HostFor(n)), at.HostBytes
			place.FreeBytes -= copies * c.Memory.Window(0, c.layers())
		}
		out.Devices[i] = place
	}
	return out
}

// crowded reports whether layers would be cut for a shorter period if memory were no matter.
func (c cutter) crowded(p *pipe) bool {
	problem := c.partition(p.devices)
	_, period, err := partition.Split(problem)
	for i := range problem.Devices {
		problem.Devices[i].FreeBytes = math.MaxInt64 / 4
	}
	_, least, fail := partition.Split(problem)
	return fail == nil && (err != nil || least < period)
}

// pipe times given layers on given devices, and decides what is in flight and what is recomputed.
func (c cutter) pipe(devices, ends []int) (*pipe, error) {
	p := &pipe{devices: devices, ends: ends}
	return c.decide(p, c.stages(p))
}

// decide returns a pipe's cut with a decision for the given times.
func (c cutter) decide(cut *pipe, problem elastic.Problem) (*pipe, error) {
	p := &pipe{devices: cut.devices, ends: cut.ends}
	for s, d := range p.devices {
		first, end := p.layers(s)
		if need := c.Memory.Host(first, end); c.Offloads(d) && need > c.Devices[d].HostBytes {
			return nil, &partition.NoFit{Device: s, First: first, End: end, NeedBytes: need, FreeBytes: c.Devices[d].HostBytes, Host: true}
		}
	}
	choice, err := elastic.Choose(problem)
	var no *elastic.NoRoom
	if short := errors.As(err, &no); c.Memory.MostLevels() > 0 && (short || err == nil && choice.Bound.Memory()) {
		for s, d := range p.devices {
			first, end := p.layers(s)
			problem.Stages[s].Layers = c.On(d).Choices(&c.Devices[d].Speed, first, end)
		}
		choice, err = elastic.Choose(problem)
	}
	if errors.As(err, &no) {
		first, end := p.layers(no.Stage)
		d := p.devices[no.Stage]
		need := c.Fixed(d, first, end) + no.NeedBytes
		return nil, &partition.NoFit{Device: no.Stage, First: first, End: end, NeedBytes: need, FreeBytes: c.Devices[d].FreeBytes}
	}
	if err != nil {
		return nil, fmt.Errorf("planner: time %d stages: %w", len(p.devices), err)
	}
	p.problem, p.Decision = problem, choice
	return p, nil
}

// stages returns a pipe's stages before anything is decided.
func (c cutter) stages(p *pipe) elastic.Problem {
	out := elastic.Problem{Stages: make([]elastic.Stage, len(p.devices)), Micros: c.in.Run.Train.Micros, MarginPercent: elastic.UsualMargin}
	out.Widest, out.Narrowest = c.widest, c.narrowest
	for s, d := range p.devices {
		first, end := p.layers(s)
		at := c.Devices[d]
		out.Stages[s] = elastic.Stage{
			Time:      at.Time(first, end),
			RoomBytes: at.FreeBytes - c.Fixed(d, first, end),
			SlotBytes: c.On(d).Saved(first, end) + c.Memory.Slot(),
			Given:     c.On(d).Given(&at.Speed, first, end),
		}
		out.Stages[s].Time.Update = c.Update(d, first, end)
		if !c.order.elastic() {
			out.Stages[s].RoomBytes = math.MaxInt64 / 4 // programs say whether it fits
		}
		if s > 0 {
			out.Boundaries = append(out.Boundaries, elastic.Boundary{
				Elements: cost.Elements(c.Memory.Boundary(first - 1)), Token: c.Memory.Token(), Forth: c.link(p.devices[s-1], d), Back: c.link(d, p.devices[s-1]),
			})
		}
	}
	return out
}

// measuredStages returns a pipe's stages with the times that were measured of them, in a replica
// that takes so many micro-batches.
func (c cutter) measuredStages(p *pipe, replica plan.Replica, micros int, stages []MeasuredStage) elastic.Problem {
	problem := c.stages(p)
	for _, seen := range stages {
		if seen.Replica != replica || int(seen.Stage) >= len(p.devices) || seen.Stage < 0 {
			continue
		}
		forward, backward, update, ok := seen.PerMicro(micros)
		if !ok {
			continue
		}
		stage := &problem.Stages[seen.Stage]
		before, modelled := stage.Time.Input, stage.Time.Update
		_, again := c.recomputed(p, int(seen.Stage), 0)
		stage.Time = cost.Scaled(stage.Time, forward, backward-again)
		for i := range stage.Given { // parts of the input gradient
			stage.Given[i].Time = cost.MulDiv(stage.Time.Input, stage.Given[i].Time, before)
		}
		if stage.Time.Update = modelled; update > 0 {
			stage.Time.Update = update
		}
	}
	return problem
}

// recomputed returns the time of what a stage of a pipe recomputes by choice, of so many last layers
// and of all.
func (c cutter) recomputed(p *pipe, stage, ahead int) (early, all schedule.Nanos) {
	first, end := p.layers(stage)
	at := cost.Stage{Device: p.devices[stage], First: first, End: end}
	for i, level := range p.Recompute[stage] {
		if level == model.RecomputeNothing {
			continue
		}
		again := c.Again(at, i, level).Time
		if all += again; i >= len(p.Recompute[stage])-ahead {
			early += again
		}
	}
	return early, all
}

// recomputing returns a problem's costs with what the pipe's stages recompute of their layers.
func (c cutter) recomputing(p *pipe, problem elastic.Problem) schedule.Costs {
	costs := problem.Costs(p.Codecs)
	for s, stage := range problem.Stages {
		early, all := c.recomputed(p, s, p.Ahead[s])
		costs.Stages[s].Input += all
		if stage.Given != nil { // it is in Input
			early = 0
			for _, given := range stage.Given[len(stage.Given)-p.Ahead[s]:] {
				early += given.Time
			}
		}
		costs.Stages[s].Input -= early
		costs.Stages[s].Recompute = early
	}
	return costs
}

// deepened returns the pipe, cut so that each device has a layer for each chunk of the schedule. It
// moves layers to devices that have fewer, one by one from those that have most.
func (c cutter) deepened(p *pipe) (*pipe, error) {
	if c.order.any() {
		return p, nil // one chunk each
	}
	layers := p.lengths()
	deep := deepen(layers, c.order.spec.Chunks())
	if slices.Equal(deep, layers) {
		return p, nil
	}
	ends := make([]int, len(deep))
	for s, n := range deep {
		ends[s] = n + ends[max(s-1, 0)]
	}
	return c.pipe(p.devices, ends)
}

func deepen(layers []int, chunks int) []int {
	layers = slices.Clone(layers)
	for {
		least, most := slices.Index(layers, slices.Min(layers)), slices.Index(layers, slices.Max(layers))
		if layers[least] >= chunks || layers[most] <= chunks {
			return layers
		}
		layers[least]++
		layers[most]--
	}
}
