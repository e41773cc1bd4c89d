package planner

import (
	"context"
	"fmt"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/optimum"
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
// for with less work. Warm-ups and recomputation follow from the cut, as they do there. Optimizer state is on the devices, whole
// unless the run shards it, and the run's schedule is 1F1B. It is exact by branch and bound, from a step that is known to be possible,
// and gives up after so much work, in units of [optimum.Search]. Errors wrap plan.ErrBadInput, or ctx's.
func Optimum(ctx context.Context, in Input, known schedule.Nanos, work int) (Best, error) {
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
	e := exact{s}
	o := e.look(ctx, pool, shapes, known, work)
	best := Best{Step: o.Step, Proven: o.Left > 0}
	if o.Pipes != nil {
		k, err := e.candidate(o.Pipes)
		if err != nil {
			return Best{}, err
		}
		for r, p := range k.pipes {
			best.Groups = append(best.Groups, s.group(s.order, p, k.shares[r]))
		}
	}
	return best, ended(ctx)
}

// exact cuts replicas and times plans for package optimum, with the optimizer state on the devices.
type exact struct{ *search }

// polishWork bounds the search for a better plan of up to dropUpTo devices, in units of optimum.Search.
const polishWork = 1 << 17

// recomputeWork is the work of deciding what a replica recomputes, in units of optimum.Search.
const recomputeWork = 1 << 11

// polish returns the best plan in 1F1B that branch and bound finds, nil where none has a shorter step than the best of ranked
// candidates. Rules and small changes, which made these, end where no single change helps. Of many devices there are too many plans: it looks
// at those of the best candidates.
func (e exact) polish(ctx context.Context, ranked []*candidate) (*candidate, error) {
	pool := e.roomy()
	if len(pool) > dropUpTo && len(e.problem.devices) <= settleUpTo {
		pool = fewOf(ranked)
	}
	if len(pool) == 0 || len(pool) > dropUpTo || !e.order.elastic() {
		return nil, nil
	}
	shapes, err := e.shapes(pool)
	if err != nil {
		return nil, err
	}
	o := e.look(ctx, pool, shapes, ranked[0].step(), polishWork)
	if o.Pipes == nil {
		return nil, ended(ctx)
	}
	return e.candidate(o.Pipes)
}

// fewOf returns up to dropUpTo devices, those of the first of ranked candidates and of others that fit beside these; none where that one has more.
func fewOf(ranked []*candidate) (pool []int) {
	for _, k := range ranked {
		more := slices.DeleteFunc(k.devices(), func(d int) bool { return slices.Contains(pool, d) })
		if len(pool)+len(more) <= dropUpTo {
			pool = append(pool, more...)
		} else if pool == nil {
			break
		}
	}
	slices.Sort(pool)
	return pool
}

// look goes through shapes of a pool for a step shorter than a known one.
func (e exact) look(ctx context.Context, pool []int, shapes []bounded, known schedule.Nanos, work int) (o *optimum.Search[*pipe]) {
	cut := func(m *cost.Model, devices, ends []int, micros int) (*pipe, schedule.Nanos, error) {
		p, passes, err := e.cut(m, devices, ends, micros)
		if m.Memory.MostLevels() > 0 && (err != nil || p.problem.Stages[0].Layers != nil) {
			o.Left = max(0, o.Left-recomputeWork)
		}
		return p, passes, err
	}
	o = optimum.New(e.planned(pool), optimum.Calls[*pipe]{Cut: cut, Time: e.time, Stop: func() bool { return ctx.Err() != nil }}, known, work)
	for _, b := range shapes {
		if b.bound < o.Step && e.in.Run.CheckMessages(b.stages) == nil {
			o.Look(optimum.Shape{Replicas: b.replicas, Stages: b.stages, Model: e.modelFor(b.shape), Micros: e.leastMicros(b.replicas)})
		}
	}
	return o
}

// modelFor returns the cost model with room for the partial sums of a shape. Replicas have their optimizer state in parts only where the
// run asks for that.
func (e exact) modelFor(sh shape) *cost.Model {
	parts := e.parts(sh.replicas, e.partials(sh))
	if e.shard() == plan.ShardOn {
		parts.Layers = e.models.whole().Memory.All()
	}
	return e.models.with(parts, nil)
}

// cut returns a replica with the time of its passes.
func (e exact) cut(m *cost.Model, devices, ends []int, micros int) (*pipe, schedule.Nanos, error) {
	p, err := cutter{e.problem, m, e.order}.pipe(devices, ends)
	if err != nil {
		return nil, 0, err
	}
	passes, err := p.simulated(micros).Makespan()
	return p, passes, err
}

// candidate returns the plan of replicas, simulated.
func (e exact) candidate(pipes []*pipe) (*candidate, error) {
	k := &candidate{shape: shape{len(pipes), len(pipes[0].devices)}, order: e.order, pipes: pipes}
	k.model = e.modelFor(k.shape)
	return k, e.timed(k)
}

// time returns the step of replicas.
func (e exact) time(pipes []*pipe) (schedule.Nanos, error) {
	k, err := e.candidate(pipes)
	if err != nil {
		return 0, err
	}
	return k.step(), nil
}

// leastMicros returns by replica how many micro-batches it takes at least, however they are shared.
func (e exact) leastMicros(replicas int) []int {
	micros, sums := slices.Repeat([]int{1}, replicas), e.in.Run.Train.Sums()
	if replicas == 1 {
		return []int{sums.Micros}
	}
	if e.sharingOf(e.order).uneven {
		return micros
	}
	for units, first := sums.Groups, true; units >= replicas; units, first = coarser(units), false {
		for r, share := range sums.Even(replicas, units) {
			if n := sums.MicrosOf(share); first || n < micros[r] {
				micros[r] = n
			}
		}
		if units <= 1 {
			break
		}
	}
	return micros
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
	k.model = s.models.with(s.parts(len(groups), s.partials(k.shape)), nil)
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
	return newSearch(p, p.precision().Storages[0])
}
