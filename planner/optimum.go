package planner

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// Best is the least predicted step among plans.
type Best struct {
	Step schedule.Nanos
	// Groups has the devices of that plan in pipeline order with their layers; nil where no plan is quicker than
	// what was known.
	Groups []plan.ReplicaGroup
	// Proven reports that every other plan was timed or cannot be quicker.
	Proven bool
}

// Optimum returns the least predicted step of all sets and orders of devices, numbers of replicas and cuts: what [Make] looks
// for without trying them all. Warm-ups and recomputation follow from the cut, as they do there; optimizer state is whole and
// on the devices, and the run's schedule is 1F1B. It is exact by branch and bound, from a step that is known to be possible,
// and gives up after so many placements of a stage. Errors wrap plan.ErrBadInput, or ctx's.
func Optimum(ctx context.Context, in Input, known schedule.Nanos, placements int) (Best, error) {
	s, err := searchIn(in)
	if err != nil {
		return Best{}, err
	}
	if !s.order.elastic() {
		return Best{}, fmt.Errorf("%w: schedule is %v, the optimum is looked for in %s", plan.ErrBadInput, s.order.spec, plan.ScheduleName)
	}
	pool := s.roomy()
	shapes, err := s.shapes(pool)
	if err != nil {
		return Best{}, err
	}
	o := optimum{search: s, ctx: ctx, pool: pool, best: Best{Step: known}, left: placements, lower: newLowerBound(s, pool)}
	o.micro = newWork(s.models.whole().Devices, pool, func(t schedule.StageTime) schedule.Nanos { return t.Micro() })
	o.passage = newWork(s.models.whole().Devices, pool, func(t schedule.StageTime) schedule.Nanos { return t.Forward + t.Input })
	for _, b := range shapes {
		if b.bound < o.best.Step {
			o.begin(b.shape)
			o.place(prefix{})
		}
	}
	o.best.Proven = o.left > 0
	return o.best, ended(ctx)
}

// StepOf returns the predicted step of a cut that somebody else has made: replica groups of devices in pipeline order with
// their layers. Shares, warm-ups and recomputation follow from it as they do in [Make]. Errors wrap plan.ErrBadInput,
// plan.ErrBadPlan or ErrNoFit.
func StepOf(in Input, groups []plan.ReplicaGroup) (schedule.Nanos, error) {
	s, err := searchIn(in)
	if err != nil {
		return 0, err
	}
	if len(groups) == 0 || slices.ContainsFunc(groups, func(g plan.ReplicaGroup) bool {
		return len(g.Layers) == 0 || len(g.Layers) != len(g.Workers) || len(g.Layers) != len(groups[0].Layers)
	}) {
		return 0, fmt.Errorf("%w: each of %d replica groups needs as many workers, with layers each", plan.ErrBadPlan, len(groups))
	}
	k := &candidate{shape: shape{len(groups), len(groups[0].Workers)}, order: s.order}
	k.model = s.models.with(cost.Parts{Partials: s.partials(k.shape)}, nil)
	for _, group := range groups {
		p, err := s.adoptGroup(k, group)
		if err != nil {
			return 0, err
		}
		if p.ends[len(p.ends)-1] != s.layers() {
			return 0, fmt.Errorf("%w: %d of %d layers are on devices", plan.ErrBadPlan, p.ends[len(p.ends)-1], s.layers())
		}
		devices := p.devices
		if p, err = s.cutter(k).pipe(devices, p.ends); err != nil {
			return 0, s.noFit(k.model, devices, err)
		}
		k.pipes = append(k.pipes, p)
	}
	if err := s.timed(k); err != nil {
		return 0, err
	}
	return k.step(), nil
}

// searchIn begins a search in the first precision of an input. Errors wrap plan.ErrBadInput.
func searchIn(in Input) (*search, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	p, err := newProblem(in)
	if err != nil {
		return nil, err
	}
	return newSearch(p, p.storages()[0])
}

// optimum is a branch and bound over the stages of one shape after the other.
type optimum struct {
	*search
	ctx   context.Context
	pool  []int
	best  Best
	left  int // placements
	lower lowerBound
	// micro and passage are the work of layers: all passes of a micro-batch, and those that a gradient waits for.
	micro, passage work

	// Of the shape that is looked at now:
	shape    shape
	model    *cost.Model
	micros   []int          // by replica, at least
	exchange schedule.Nanos // at least, between replicas
	made     map[packed]timedPipe
	pipes    []*pipe
	used     []bool
	devices  []int // of the replica that is being placed
	ends     []int
}

// timedPipe is a pipe with the time of its passes; nil where it does not fit.
type timedPipe struct {
	*pipe
	end schedule.Nanos
}

// work bounds from below how long layers take on devices, some of which are better at some layers.
type work struct {
	quickest []schedule.Nanos // prefix over layers: each on the device that is best for it
	rates    []int64          // by device: how much of that it does at most in 2^workBits ns
	first    []int            // devices of the pool by rate
}

const workBits = 20

// newWork returns the work of all layers as a kind of time measures it.
func newWork(devices []*cost.Device, pool []int, kind func(schedule.StageTime) schedule.Nanos) work {
	w := work{quickest: make([]schedule.Nanos, len(devices[pool[0]].Times)), rates: make([]int64, len(devices)), first: slices.Clone(pool)}
	for l := range len(w.quickest) - 1 {
		least := schedule.Nanos(math.MaxInt64)
		for _, d := range pool {
			least = min(least, kind(devices[d].Time(l, l+1)))
		}
		w.quickest[l+1] = w.quickest[l] + least
		for _, d := range pool {
			if took := kind(devices[d].Time(l, l+1)); took > 0 {
				w.rates[d] = max(w.rates[d], (int64(least)<<workBits+int64(took)-1)/int64(took))
			}
		}
	}
	slices.SortStableFunc(w.first, func(a, b int) int { return cmp.Compare(w.rates[b], w.rates[a]) })
	return w
}

// least returns the longest stage at least where layers from first on are shared by so many devices that are not used.
func (w work) least(first, devices int, used []bool) schedule.Nanos {
	sum := int64(0)
	for _, d := range w.first {
		if !used[d] && devices > 0 {
			sum, devices = sum+w.rates[d], devices-1
		}
	}
	if sum == 0 {
		return 0
	}
	left := w.quickest[len(w.quickest)-1] - w.quickest[first]
	return schedule.Nanos((int64(min(left, schedule.MaxNanos)) << workBits) / sum)
}

// begin prepares for a shape.
func (o *optimum) begin(s shape) {
	o.shape, o.model = s, o.models.with(cost.Parts{Partials: o.partials(s)}, nil)
	o.exchange, o.made = o.lower.exchange(s), map[packed]timedPipe{}
	o.used, o.devices, o.ends, o.pipes = make([]bool, len(o.problem.devices)), nil, nil, nil
	o.micros = make([]int, s.replicas)
	sums := o.in.Run.Train.Sums()
	for r := range o.micros {
		o.micros[r] = 1
		if s.replicas == 1 {
			o.micros[r] = sums.Micros
		}
	}
	if o.in.Run.Train.UnevenShares || s.replicas == 1 {
		return
	}
	for units, first := sums.Groups, true; units >= s.replicas; units, first = coarser(units), false {
		for r, share := range sums.Even(s.replicas, units) {
			if micros := sums.MicrosOf(share); first || micros < o.micros[r] {
				o.micros[r] = micros
			}
		}
		if units <= 1 {
			break
		}
	}
}

// prefix bounds the step of a replica by the stages that have been placed.
type prefix struct {
	// fill is when the next stage begins at the earliest, drain how long it takes from its last gradient to the first
	// stage's.
	fill, drain schedule.Nanos
	bound       schedule.Nanos // of the passes of this replica and of those before
	update      schedule.Nanos
}

// place tries every device and range of layers for the next stage.
func (o *optimum) place(before prefix) {
	if len(o.devices) == o.shape.stages {
		o.finish(before)
		return
	}
	first := 0
	if n := len(o.ends); n > 0 {
		first = o.ends[n-1]
	}
	after := o.shape.stages - len(o.devices) - 1
	for _, d := range o.pool {
		if o.used[d] {
			continue
		}
		from, most := first+1, o.layers()-after
		if after == 0 {
			from = most
		}
		for end := from; end <= most && o.model.Fixed(d, first, end) <= o.model.Devices[d].FreeBytes; end++ {
			if o.left--; o.left <= 0 || o.left&1023 == 0 && o.ctx.Err() != nil {
				o.left = 0
				return
			}
			o.used[d] = true
			o.devices, o.ends = append(o.devices, d), append(o.ends, end)
			if next := o.extend(before, first, end); next.bound+next.update+o.exchange < o.best.Step {
				o.place(next)
			}
			o.used[d] = false
			o.devices, o.ends = o.devices[:len(o.devices)-1], o.ends[:len(o.ends)-1]
		}
	}
}

// extend returns a prefix with the stage that was placed last. Whatever the order of passes is, the stage does all of them after
// the first activation has come, and the last gradient goes back to the first stage after its forwards and input gradients.
func (o *optimum) extend(p prefix, first, end int) prefix {
	i := len(o.devices) - 1
	d, micros := o.devices[i], schedule.Nanos(o.micros[len(o.pipes)])
	t := o.model.Devices[d].Time(first, end)
	slowest := schedule.Nanos(0) // transfer
	if i > 0 {
		bytes := o.leastBytes(o.model.Memory.Boundary(first - 1))
		forth, back := o.link(o.devices[i-1], d).Hop(bytes), o.link(d, o.devices[i-1]).Hop(bytes)
		p.fill, p.drain = p.fill+forth.Transfer+forth.Latency, p.drain+back.Transfer+back.Latency
		slowest = max(forth.Transfer, back.Transfer)
	}
	p.bound = max(p.bound, p.fill+micros*t.Micro(), p.fill+micros*(t.Forward+t.Input)+p.drain)
	p.update = max(p.update, o.model.Update(d, first, end))
	rest := schedule.Nanos(0)
	if after := o.shape.stages - i - 1; after > 0 {
		p.bound = max(p.bound, p.fill+t.Forward+micros*o.micro.least(end, after, o.used), p.fill+t.Forward+micros*o.passage.least(end, after, o.used)+t.Input+p.drain)
		rest = o.passage.least(end, 1, o.used)
	}
	p.bound = max(p.bound, p.fill+t.Forward+t.Input+rest+(micros-1)*slowest+p.drain)
	p.fill, p.drain = p.fill+t.Forward, p.drain+t.Input
	return p
}

// finish goes on with the next replica, or times the plan.
func (o *optimum) finish(before prefix) {
	key := pack(append(append([]int{o.micros[len(o.pipes)]}, o.devices...), o.ends...))
	p, known := o.made[key]
	if !known {
		p = o.cut()
		o.made[key] = p
	}
	before.bound = max(before.bound, p.end)
	if p.pipe == nil || before.bound+before.update+o.exchange >= o.best.Step {
		return
	}
	o.pipes = append(o.pipes, p.pipe)
	defer func() { o.pipes = o.pipes[:len(o.pipes)-1] }()
	if len(o.pipes) < o.shape.replicas {
		devices, ends := o.devices, o.ends
		o.devices, o.ends = nil, nil
		o.place(prefix{bound: before.bound, update: before.update})
		o.devices, o.ends = devices, ends
		return
	}
	k := &candidate{shape: o.shape, order: o.order, model: o.model, pipes: slices.Clone(o.pipes)}
	if o.timed(k) == nil && k.step() < o.best.Step {
		o.best.Step, o.best.Groups = k.step(), nil
		for r, p := range k.pipes {
			o.best.Groups = append(o.best.Groups, o.group(o.order, p, k.shares[r]))
		}
	}
}

// cut returns the pipe of the devices and ends that have been placed, with the time of its passes.
func (o *optimum) cut() timedPipe {
	c := cutter{o.problem, o.model, o.order}
	p, err := c.pipe(slices.Clone(o.devices), slices.Clone(o.ends))
	if err != nil {
		return timedPipe{}
	}
	end, err := p.simulated(o.micros[len(o.pipes)]).Makespan()
	if err != nil {
		return timedPipe{}
	}
	return timedPipe{p, end}
}
