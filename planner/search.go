package planner

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/layout"
	"pnode/planner/optimum"
	"pnode/planner/order"
	"pnode/planner/plan"
)

const (
	// At most maxShapes shapes are cut, the likely shortest steps first; of many devices fewer,
	// maxShapeDevices in all.
	maxShapes       = 24
	maxShapeDevices = 2048
	// exhaustUpTo is the number of devices up to which every order is tried, dropUpTo the
	// one up to which leaving out each device is.
	exhaustUpTo = 5
	dropUpTo    = 8
	// Shapes of several replicas on up to spreadUpTo devices are looked at whatever the pool, of models with many layers those of fewer: their
	// devices and the layers have spreadWork as product.
	spreadUpTo = 24
	spreadWork = 640
	// settleUpTo is the number of devices up to which the whole search is repeated.
	settleUpTo = 64
	// maxRounds bounds how often the search goes on from the best order.
	maxRounds = 16
)

// search looks for the best candidate of a problem in one precision. It remembers what it has tried
// and made.
type search struct {
	drafts
	models *costModels
	order  ordering
	// orders is what the order of devices depends on.
	orders    order.Devices
	tried     map[orderKey]bool
	cuts      map[cutKey]cutMade
	simulated int // actions, for ranking
	// waiting has by replicas how many partial sums of gradients a stage has at most.
	waiting map[int]int
	budget  layout.Budget
	// runs reports that it is about a plan that runs, whose workers apply steps before their commit or do not.
	runs bool
	// yields says why it asks for fewer replicas than the run does; empty where it does not.
	yields string
}

// orderKey names replicas on devices in an order.
type orderKey struct {
	replicas int
	devices  packed
}

// newSearch begins a search of a problem in a precision. Errors wrap plan.ErrBadInput.
func newSearch(p *problem, as model.Storage) (*search, error) {
	o, err := newOrdering(p.in.Run.Train.Schedule, p.in.Run.Model)
	if err != nil {
		return nil, fmt.Errorf("%w: schedule is %.60q: %w", plan.ErrBadInput, p.in.Run.Train.Schedule, err)
	}
	if p.apart && o.copies > 1 {
		return nil, fmt.Errorf("%w: schedule is %v, whose replicas share devices, and replicas with local steps do not: take another schedule, or sync every-step", plan.ErrBadInput, o.spec)
	}
	m, err := p.costModel(as)
	if err != nil {
		return nil, err
	}
	made := drafts{p, map[programKey]schedule.Schedule{}, map[holderKey][][]int{}}
	return (&search{drafts: made, models: &costModels{[]*cost.Model{m}}, order: o, cuts: map[cutKey]cutMade{}}).of(p), nil
}

// of begins a search of a problem that differs in the plan in force, with the same models. What has been cut is not cut again.
func (s *search) of(p *problem) *search {
	out := &search{
		drafts: drafts{p, s.programs, s.holders}, models: s.models, order: s.order, cuts: s.cuts,
		tried: map[orderKey]bool{}, waiting: map[int]int{},
	}
	out.budget.Actions = simulateActions
	return out
}

// ordersOf returns what the order of a search's devices depends on.
func ordersOf(s *search) (o order.Devices) {
	p, n := s.problem, len(s.problem.devices)
	o.Near, o.Measured, o.Prior = make([][]schedule.Nanos, n), p.links.Any(), p.prior
	bytes := p.leastBytes(s.models.whole().Memory.Activation())
	for u, d := range s.models.whole().Devices {
		o.Whole, o.FreeBytes = append(o.Whole, d.Whole()), append(o.FreeBytes, d.FreeBytes)
		o.Near[u] = make([]schedule.Nanos, n)
		for v := range u + 1 {
			forth, back := p.link(u, v).Hop(bytes), p.link(v, u).Hop(bytes)
			o.Near[u][v] = forth.Transfer + forth.Latency + back.Transfer + back.Latency
			o.Near[v][u] = o.Near[u][v]
		}
	}
	return o
}

// run collects candidates: over all devices, then, for few of them and measured links,
// without each one, since a fast node on a slow link can be worse than none. It repeats
// with the best order so far as a further one to try, until that brings nothing: so
// planning again with the plan as the previous one finds the same. It looks at ctx before each order
// of devices and each simulation.
func (s *search) run(ctx context.Context) ([]*candidate, error) {
	s.orders = ordersOf(s)
	pool := s.roomy()
	quicker := s.quicker(pool)
	shapes, err := s.shapes(pool)
	if err != nil {
		return nil, err
	}
	var found []*candidate
	if kept := s.keep(); kept != nil {
		found = append(found, kept)
	} else if s.in.Previous != nil { // what it can do without is no error
		if r, err := newRepair(s); err == nil {
			found, _ = r.candidates()
		}
	}
	best := schedule.Nanos(math.MaxInt64)
	clear(s.tried)
	for round := range maxRounds {
		more, fail := s.explore(ctx, pool, shapes)
		if err := ended(ctx); err != nil {
			return nil, err
		}
		found = append(found, more...)
		if n := len(pool); round == 0 && n > dropUpTo && n <= settleUpTo {
			found = append(found, exact{s}.splits(pool, shapes, found)...)
		}
		for _, some := range quicker { // what does not fit there is no error
			more, _ := s.explore(ctx, some, within(shapes, len(some)))
			found = append(found, more...)
		}
		if len(found) == 0 {
			return nil, cmp.Or(ended(ctx), fail)
		}
		if s.orders.Measured && len(pool) > exhaustUpTo && len(pool) <= dropUpTo {
			fewer := within(shapes, len(pool)-1)
			for d := range pool { // what does not fit without one is no error
				more, _ := s.explore(ctx, slices.Delete(slices.Clone(pool), d, d+1), fewer)
				found = append(found, more...)
			}
		}
		if found, err = s.rank(ctx, found); err != nil {
			return nil, err
		}
		step := found[0].step()
		if len(pool) <= exhaustUpTo || step >= best {
			break
		}
		best, s.orders.Prior = step, found[0].devices()
	}
	return walker{s}.improve(ctx, pool, found), ended(ctx)
}

// settle adds the best plan of few devices and other kinds of schedules, and repeats the search as if the best candidate were
// the plan in force, until that finds nothing better: a plan just made is not replaced unless something changes. Of
// very many devices a repetition would take too long, of few the search is complete.
func (s *search) settle(ctx context.Context, found []*candidate) ([]*candidate, error) {
	polished, err := exact{s}.polish(ctx, found)
	if err != nil {
		return nil, err
	}
	found = kindSearch{s}.withKinds(ctx, found, polished)
	if best, _ := s.choose(found); s.in.Previous != nil && best.kept {
		return found, nil // the same search again
	}
	for range maxRounds {
		if n := len(s.problem.devices); n <= exhaustUpTo || n > settleUpTo {
			break
		}
		best, err := s.write(found[0])
		if err != nil {
			return nil, err
		}
		next, err := s.after(best)
		if err != nil {
			return nil, err
		}
		again := s.of(next)
		more, err := again.run(ctx)
		if err != nil {
			return found, err
		}
		polished, err := exact{again}.polish(ctx, more)
		if err != nil {
			return found, err
		}
		if more = (kindSearch{again}).withKinds(ctx, more, polished); found[0].step() <= near(more[0].step()) {
			return found, nil
		}
		for _, k := range more {
			k.kept, k.movedBytes = false, s.movedBytes(k.layout.Rows)
		}
		if found, err = s.rank(ctx, append(found, more...)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// explore makes candidates of a pool's devices until no shape left can be better. When
// nothing fits it returns the first reason, that messages are too long before the others: no node
// that joins helps against it.
func (s *search) explore(ctx context.Context, pool []int, shapes []bounded) (found []*candidate, err error) {
	var tooLong error
	best, m := schedule.Nanos(math.MaxInt64), s.models.whole()
	most := min(maxShapes, maxShapeDevices/max(len(pool), 1))
	offload, roomiest := s.offloaders(pool) != nil, s.orders.RoomiestFirst(pool)
	room := make([]int64, len(pool)+1) // by number of devices, the roomiest first
	for i, d := range roomiest {
		room[i+1] = room[i] + min(m.Devices[d].FreeBytes, 1<<48)
	}
	tried, spread := 0, 0
	if len(pool) > dropUpTo {
		if len(pool) <= settleUpTo {
			shapes = slices.Clone(shapes)
			slices.SortStableFunc(shapes, func(a, b bounded) int { return cmp.Compare(a.likely, b.likely) })
		}
		shapes, spread = spreadOut(shapes, min(spreadUpTo, spreadWork/s.layers()))
		most += spread
	}
	for _, b := range shapes {
		if ctx.Err() != nil {
			break
		}
		if len(found) > 0 && (b.bound > best || tried >= most && b.devices() > dropUpTo) { // the bound prefers many devices
			continue
		}
		if fail := s.in.Run.CheckMessages(b.stages); fail != nil {
			tooLong = cmp.Or(tooLong, fail)
			continue
		}
		leanest, copies := m, b.replicas*s.order.copies
		if s.shard() != plan.ShardOff {
			leanest = s.models.with(cost.Parts{Replicas: copies, Layers: m.Memory.All()}, nil)
		}
		if need := int64(copies)*leanest.Memory.LeastFixed(b.stages, offload) + int64(b.replicas)*m.Memory.LeastSaved(); need > room[b.devices()] {
			if err == nil {
				err = s.tooLittle(m, b.shape, roomiest[:b.devices()], need)
			}
			continue
		}
		tried++
		some, fail := s.fill(ctx, pool, b.shape)
		if err == nil {
			err = fail
		}
		for _, k := range some {
			best = min(best, k.estimate)
		}
		found = append(found, some...)
	}
	return found, cmp.Or(tooLong, err)
}

// spreadOut returns shapes with some at the front, and how many these are: of 1, 2, 4, 8 and so on replicas the first ones in
// their order with any number of stages, with three quarters of these at most, and with half; and those of several replicas
// on up to so many devices, of many stages one in four or so. The order counts on the quickest lines there are: of many devices, or several sites, it is far from what can be
// done. The small ones are the same whatever the pool: what is best on fewer devices is looked at on more of them, too.
func spreadOut(shapes []bounded, upTo int) (out []bounded, front int) {
	taken := map[shape]bool{}
	take := func(which func(bounded) bool) (shape, bool) {
		i := slices.IndexFunc(shapes, which)
		if i < 0 {
			return shape{}, false
		}
		if !taken[shapes[i].shape] {
			taken[shapes[i].shape] = true
			out = append(out, shapes[i])
		}
		return shapes[i].shape, true
	}
	for replicas := 1; ; replicas *= 2 {
		first, known := take(func(b bounded) bool { return b.replicas == replicas })
		if !known {
			break
		}
		for _, part := range []int{3, 2} {
			take(func(b bounded) bool { return b.replicas == replicas && b.stages <= first.stages/4*part })
		}
		for stages := 1; replicas > 1 && replicas*stages <= upTo; stages += max(1, stages/4) {
			take(func(b bounded) bool { return b.shape == shape{replicas, stages} })
		}
	}
	front = len(out)
	for _, b := range shapes {
		if !taken[b.shape] {
			out = append(out, b)
		}
	}
	return out, front
}

// fill makes the candidates of one shape; where the usual ones do not fit or lack
// memory, also those that put the most memory first.
func (s *search) fill(ctx context.Context, pool []int, sh shape) (found []*candidate, err error) {
	try := func(order []int) *candidate {
		key := orderKey{sh.replicas, pack(order)}
		if s.tried[key] || ctx.Err() != nil {
			return nil
		}
		s.tried[key] = true
		k, fail := s.arrange(sh, order)
		if fail != nil {
			err = cmp.Or(err, fail)
			return nil
		}
		found = append(found, k)
		return k
	}
	if len(s.problem.devices) <= exhaustUpTo {
		for _, order := range order.All(pool, sh.devices()) {
			try(order)
		}
		return found, err
	}
	easy := false
	for _, set := range s.orders.Sets(pool, sh.devices()) {
		for _, order := range s.orders.Orders(sh.replicas, sh.stages, set) {
			if k := try(order); k != nil && !k.tight() {
				easy = true
			}
		}
	}
	if !easy {
		for _, order := range s.orders.Roomy(pool, sh.devices()) {
			try(order)
		}
	}
	return found, err
}

// partials returns how many partial sums of gradients a stage of a shape has at most.
func (s *search) partials(sh shape) int {
	most, known := s.waiting[sh.replicas]
	if !known {
		most = s.sharingOf(s.order).mostPartials(sh.replicas)
		s.waiting[sh.replicas] = most
	}
	return most
}

// keep returns the cut of the plan in force with today's costs, nil when it cannot go on.
func (s *search) keep() *candidate {
	t := s.in.Run.Train
	if s.in.Previous == nil || len(s.in.Previous.Replicas) == 0 || s.in.Previous.Validate(s.layers(), t.Sums()) != nil {
		return nil
	}
	k, err := s.adopt(*s.in.Previous)
	if err != nil || (k.copies() > 1 && s.apart != (k.pinned != nil)) || (t.Replicas > 0 && t.Replicas != k.shape.replicas) || (t.Stages > 0 && t.Stages != k.shape.stages) {
		return nil
	}
	used := map[int]bool{}
	for i, p := range k.pipes {
		if len(p.devices) != k.shape.stages || used[p.devices[0]] { // or several copies on one replica group
			return nil
		}
		used[p.devices[0]] = true
		if k.pipes[i], err = s.cutter(k).pipe(p.devices, p.ends); err != nil {
			return nil
		}
	}
	k.shares, k.layout, k.kept = nil, nil, true
	if s.estimate(k) != nil {
		return nil
	}
	return k
}

// shapes lists what a pool's devices allow, the lowest bound first. A run that has begun goes on in 1F1B
// where its schedule fits none.
func (s *search) shapes(pool []int) ([]bounded, error) {
	t, n := s.in.Run.Train, len(pool)
	asked := shape{max(t.Replicas, 1), max(t.Stages, 1)}
	if n < asked.devices() {
		if s.members == 0 {
			return nil, fmt.Errorf("%w: %v need %s, and no node is ready yet; the run goes on as soon as enough of its nodes are up again",
				ErrNotEnoughNodes, asked, plan.Count(asked.devices(), "device"))
		}
		why := ""
		for _, m := range s.idle[:min(len(s.idle), 1)] {
			why = fmt.Sprintf(" (%s: %s)", m.label, m.why)
		}
		return nil, fmt.Errorf("%w: %v need %s, %d of %s can be used%s; let %d more join, or ask for fewer stages or replicas",
			ErrNotEnoughNodes, asked, plan.Count(asked.devices(), "device"), n, plan.Count(s.members, "node"), why, asked.devices()-n)
	}
	lower := optimum.NewLower(s.planned(pool))
	var shapes []bounded
	var unfit error
	most := min(n, t.Sums().Groups/s.order.copies)
	if s.apart {
		most = min(most, plan.MaxLocalReplicas)
	}
	for r := asked.replicas; r <= most; r++ {
		for st := asked.stages; st <= min(n/r, s.layers()); st++ {
			if err := s.order.fits(shape{r, st}, s.layers(), t.Sums()); err == nil {
				shapes = append(shapes, bounded{shape{r, st}, lower.Of(r, st), lower.Likely(r, st)})
			} else if unfit == nil {
				unfit = err
			}
			if t.Stages > 0 {
				break
			}
		}
		if t.Replicas > 0 {
			break
		}
	}
	switch {
	case len(shapes) > 0:
	case unfit == nil:
		return nil, fmt.Errorf("%w: %s of micro-batches for %d x %d copies of the model under %s: each needs at least one (sum_groups)", plan.ErrBadInput, plan.Count(t.Sums().Groups, "group"), asked.replicas, s.order.copies, s.order.spec)
	case s.in.Previous == nil:
		return nil, fmt.Errorf("%w for the schedule: %w", ErrNotEnoughNodes, unfit)
	default:
		s.order = ordering{spec: schedule.Spec{Kind: plan.ScheduleName}, copies: s.order.copies} // which fits any group
		return s.shapes(pool)
	}
	slices.SortStableFunc(shapes, func(a, b bounded) int {
		return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.devices(), b.devices()), cmp.Compare(a.replicas, b.replicas))
	})
	return shapes, nil
}

// planned returns a pool's devices as package optimum reads them.
func (s *search) planned(pool []int) optimum.Devices {
	return optimum.Devices{Model: s.models.whole(), Pool: pool, Micros: s.in.Run.Train.Micros, Bytes: s.leastBytes, Message: s.leastMessage(), Apart: s.apart}
}
