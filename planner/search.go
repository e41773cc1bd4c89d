package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
)

const (
	// At most maxShapes shapes are cut, the lowest bounds first; of many units fewer,
	// maxShapeUnits in all.
	maxShapes     = 24
	maxShapeUnits = 2048
	// exhaustUpTo is the number of units up to which every order is tried, dropUpTo the
	// one up to which leaving out each unit is.
	exhaustUpTo = 5
	dropUpTo    = 8
	// settleUpTo is the number of units up to which the whole search is repeated.
	settleUpTo = 64
	// maxRounds bounds how often the search goes on from the best order.
	maxRounds = 16
)

// search collects candidates: over all units, then, for few of them and measured links,
// without each one, since a fast node on a slow link can be worse than none. It repeats
// with the best order so far as a further one to try, until that brings nothing: so
// planning again with the plan as the previous one finds the same.
func (c *cluster) search() ([]*candidate, error) {
	pool := make([]int, len(c.units))
	for u := range pool {
		pool[u] = u
	}
	shapes, err := c.shapes(len(pool))
	if err != nil {
		return nil, err
	}
	var found []*candidate
	if kept := c.keep(); kept != nil {
		found = append(found, kept)
	}
	best := schedule.Nanos(math.MaxInt64)
	c.tried = map[string]bool{}
	for range maxRounds {
		more, fail := c.explore(pool, shapes)
		if found = append(found, more...); len(found) == 0 {
			return nil, fail
		}
		if len(c.links.measured) > 0 && len(pool) > exhaustUpTo && len(pool) <= dropUpTo {
			found = append(found, c.exploreWithout(pool, shapes)...)
		}
		if found, err = c.rank(found); err != nil {
			return nil, err
		}
		step := found[0].step()
		if len(pool) <= exhaustUpTo || step >= best {
			break
		}
		best, c.prior = step, found[0].order()
	}
	return found, nil
}

// settle repeats the search as if the best candidate were the plan in force, until that
// finds nothing better: a plan just made is not replaced unless something changes. Of
// very many units a repetition would take too long, of few the search is complete.
func (c *cluster) settle(found []*candidate) ([]*candidate, error) {
	for range maxRounds {
		if len(c.units) <= exhaustUpTo || len(c.units) > settleUpTo {
			return found, nil
		}
		in := c.in
		plan, err := c.plan(found[0])
		if err != nil {
			return nil, err
		}
		in.Previous = &plan
		next, err := newCluster(in, c.store)
		if err != nil {
			return nil, err
		}
		more, err := next.search()
		if err != nil || found[0].step() <= near(more[0].step()) {
			return found, err
		}
		for _, k := range more {
			k.kept, k.movedByte = false, c.movedBytes(k.rows())
		}
		if found, err = c.rank(append(found, more...)); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// exploreWithout leaves out each unit in turn. What does not fit without one is no error.
func (c *cluster) exploreWithout(pool []int, shapes []bounded) (found []*candidate) {
	fewer := slices.DeleteFunc(slices.Clone(shapes), func(b bounded) bool { return b.units() >= len(pool) })
	for u := range pool {
		more, _ := c.explore(slices.Delete(slices.Clone(pool), u, u+1), fewer)
		found = append(found, more...)
	}
	return found
}

// bounded is a shape with a step time that it cannot beat.
type bounded struct {
	shape
	bound schedule.Nanos
}

// shapes lists what n units allow, the lowest bound first.
func (c *cluster) shapes(n int) ([]bounded, error) {
	t := c.in.Run.Train
	asked := shape{max(t.Replicas, 1), max(t.Stages, 1)}
	if n < asked.units() {
		return nil, fmt.Errorf("%w: %v need %s, %d of %s can be used; let %d more join, or ask for fewer stages or replicas",
			ErrNotEnoughNodes, asked, Count(asked.units(), "device"), n, Count(len(c.in.Members), "node"), asked.units()-n)
	}
	lower := c.newLowerBound()
	var shapes []bounded
	var unfit error
	for r := asked.replicas; r <= min(n, t.Micros/c.order.copies); r++ {
		for s := asked.stages; s <= min(n/r, c.layers()); s++ {
			if err := c.order.fits(shape{r, s}, c.layers(), t.Micros); err == nil {
				shapes = append(shapes, bounded{shape{r, s}, lower.of(shape{r, s})})
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
	case len(shapes) == 0 && unfit == nil:
		return nil, fmt.Errorf("%w: %s for %d x %d copies of the model under %s: each needs at least one", ErrBadInput, Count(t.Micros, "micro-batch"), asked.replicas, c.order.copies, c.order.spec)
	case len(shapes) == 0:
		if c.in.Previous == nil {
			return nil, fmt.Errorf("%w for the schedule: %w", ErrNotEnoughNodes, unfit)
		}
		c.order = c.order.plain() // a run that has begun goes on
		return c.shapes(n)
	}
	slices.SortStableFunc(shapes, func(a, b bounded) int {
		return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.units(), b.units()), cmp.Compare(a.replicas, b.replicas))
	})
	return shapes, nil
}

// lowerBound bounds step times with one chunk on each device from below: the first micro-batch of a replica takes at
// least the fastest unit's time for the whole model; the others share all speed there
// is; no period is shorter than the longest layer on the unit that is best for it.
type lowerBound struct {
	micros  int
	first   schedule.Nanos
	layer   schedule.Nanos
	rateSum []int64 // by number of units, fastest first: micro-batches in 2^rateBits ns
}

const rateBits = 40

func (c *cluster) newLowerBound() lowerBound {
	b := lowerBound{micros: c.in.Run.Train.Micros, rateSum: make([]int64, len(c.units)+1)}
	wholes := make([]schedule.Nanos, len(c.units))
	for i, u := range c.units {
		wholes[i] = u.whole()
	}
	slices.Sort(wholes)
	for i, w := range wholes {
		b.rateSum[i+1] = b.rateSum[i] + (1<<rateBits)/int64(w) + 1
	}
	b.first = wholes[0]
	for l := range c.layers() {
		quickest := schedule.Nanos(math.MaxInt64)
		for _, u := range c.units {
			quickest = min(quickest, u.micro[l+1]-u.micro[l])
		}
		b.layer = max(b.layer, quickest)
	}
	return b
}

func (b lowerBound) of(s shape) schedule.Nanos {
	shared := schedule.Nanos((int64(max(b.micros-s.replicas, 0)) << rateBits) / b.rateSum[s.units()])
	most := (b.micros + s.replicas - 1) / s.replicas
	return b.first + max(shared, schedule.Nanos(most-1)*b.layer)
}

// explore makes candidates of a pool's units until no shape left can be better. When
// nothing fits it returns the first reason, that messages are too long before the others: no node
// that joins helps against it.
func (c *cluster) explore(pool []int, shapes []bounded) (found []*candidate, err error) {
	var tooLong error
	best := schedule.Nanos(math.MaxInt64)
	most := min(maxShapes, maxShapeUnits/max(len(pool), 1))
	room, away := c.room(pool), c.offloaders(pool) != nil
	tried := 0
	for _, s := range shapes {
		if len(found) > 0 && (s.bound > best || tried >= most) {
			break
		}
		if fail := c.in.Run.CheckMessages(s.stages); fail != nil {
			tooLong = cmp.Or(tooLong, fail)
			continue
		}
		if need := int64(c.copies(s.shape))*c.roomiestFor(s.shape).leastFixed(s.stages, away) + int64(s.replicas)*c.leastSaved(); need > room[s.units()] {
			if err == nil {
				err = fmt.Errorf("%w: %v need %s at least, the roomiest %s have %s; add a node, use fewer replicas, a smaller model or a smaller micro-batch",
					ErrNoFit, s.shape, cost.Size(need), Count(s.units(), "device"), cost.Size(room[s.units()]))
			}
			continue
		}
		tried++
		some, fail := c.fill(pool, s.shape)
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

// room is by number of units the free memory of that many, the roomiest first.
func (c *cluster) room(pool []int) []int64 {
	room := make([]int64, len(pool)+1)
	for i, u := range c.ranked(pool, func(u int) int64 { return -c.units[u].free }) {
		room[i+1] = room[i] + min(c.units[u].free, 1<<48)
	}
	return room
}

// fill makes the candidates of one shape; where the usual ones do not fit or lack
// memory, also those that put the most memory first.
func (c *cluster) fill(pool []int, s shape) (found []*candidate, err error) {
	try := func(order []int) *candidate {
		key := fmt.Sprint(s.replicas, order)
		if c.tried[key] {
			return nil
		}
		c.tried[key] = true
		k, fail := c.arrange(s, order)
		if fail != nil {
			if err == nil {
				err = fail
			}
			return nil
		}
		found = append(found, k)
		return k
	}
	if len(c.units) <= exhaustUpTo {
		for _, order := range permutations(pool, s.units()) {
			try(order)
		}
		return found, err
	}
	easy := false
	for _, set := range c.selections(pool, s.units()) {
		for _, order := range c.orders(s, set) {
			if k := try(order); k != nil && !k.tight() {
				easy = true
			}
		}
	}
	if !easy {
		for _, set := range appendNew(c.selections(pool, s.units()), c.roomiest(pool, s.units())) {
			try(c.ranked(set, func(u int) int64 { return -c.units[u].free }))
		}
	}
	return found, err
}

// recomputes tells whether anything is computed again.
func (k *candidate) recomputes() bool {
	if k.layout == nil {
		return slices.ContainsFunc(k.pipes, (*pipe).recomputes)
	}
	return slices.ContainsFunc(k.layout.rows, func(row []cell) bool {
		return slices.ContainsFunc(row, func(at cell) bool { return at.levels != nil })
	})
}

// tight tells whether memory or latency keeps a replica from its best period.
func (k *candidate) tight() bool {
	return slices.ContainsFunc(k.pipes, func(p *pipe) bool { return p.Period > p.Costs.Floor() })
}

// keep is the previous plan's cut with today's costs, nil when it cannot go on.
func (c *cluster) keep() *candidate {
	if c.in.Previous == nil || len(c.in.Previous.Replicas) == 0 {
		return nil
	}
	t := c.in.Run.Train
	if c.in.Previous.Validate(c.layers(), t.Micros) != nil {
		return nil
	}
	k, err := c.adopt(*c.in.Previous)
	if err != nil || (t.Replicas > 0 && t.Replicas != k.shape.replicas) || (t.Stages > 0 && t.Stages != k.shape.stages) || len(k.pipes) > t.Micros {
		return nil
	}
	used := map[int]bool{}
	for i, p := range k.pipes {
		if len(p.units) != k.shape.stages || used[p.units[0]] { // or several copies on one lane
			return nil
		}
		used[p.units[0]] = true
		if k.pipes[i], err = c.of(k).newPipe(p.units, p.ends); err != nil {
			return nil
		}
	}
	k.shares, k.layout, k.kept = nil, nil, true
	if c.of(k).estimate(k) != nil {
		return nil
	}
	return k
}
