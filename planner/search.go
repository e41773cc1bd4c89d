package planner

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"pnode/pipeline/schedule"
	"pnode/planner/order"
	"pnode/planner/plan"
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
		if c.orders.Measured && len(pool) > exhaustUpTo && len(pool) <= dropUpTo {
			found = append(found, c.exploreWithout(pool, shapes)...)
		}
		if found, err = c.rank(found); err != nil {
			return nil, err
		}
		step := found[0].step()
		if len(pool) <= exhaustUpTo || step >= best {
			break
		}
		best, c.orders.Prior = step, found[0].order()
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
		if need := int64(c.copies(s.shape))*c.roomiestFor(s.shape).books().LeastFixed(s.stages, away) + int64(s.replicas)*c.books().LeastSaved(); need > room[s.units()] {
			if err == nil {
				err = c.tooLittle(s.shape, c.orders.RoomiestFirst(pool)[:s.units()], need)
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

// tooLittle is why a shape whose stages need so many bytes, without what passes take, is refused
// even on the roomiest units. Of a device that passes alone would fill it tells so: more
// devices of that size would not help.
func (c *cluster) tooLittle(s shape, roomiest []int, need int64) error {
	var have int64
	for _, i := range roomiest {
		u := c.units[i]
		if pass := c.ledger(i).Pass(); u.FreeBytes == 0 {
			return fmt.Errorf("%w: device %s of %s has %s for the run, the passes of a stage alone need %s, however few its layers; allow more with --memory, use a smaller micro-batch or a smaller model, or add a node with more memory",
				ErrNoFit, u.device, u.node, plan.Size(u.profile.MemoryFreeBytes), plan.Size(pass))
		}
		have += min(u.profile.MemoryFreeBytes, 1<<48)
		need += c.ledger(i).Pass()
	}
	the := "the roomiest device has"
	if len(roomiest) > 1 {
		the = fmt.Sprintf("the roomiest %d devices have", len(roomiest))
	}
	return fmt.Errorf("%w: %v need %s at least, %s %s; add a node, allow more with --memory, use fewer replicas, a smaller model or a smaller micro-batch",
		ErrNoFit, s, plan.Size(need), the, plan.Size(have))
}

// room is by number of units the free memory of that many, the roomiest first.
func (c *cluster) room(pool []int) []int64 {
	room := make([]int64, len(pool)+1)
	for i, u := range c.orders.RoomiestFirst(pool) {
		room[i+1] = room[i] + min(c.units[u].FreeBytes, 1<<48)
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
		for _, order := range order.All(pool, s.units()) {
			try(order)
		}
		return found, err
	}
	easy := false
	for _, set := range c.orders.Sets(pool, s.units()) {
		for _, order := range c.orders.Orders(s.replicas, s.stages, set) {
			if k := try(order); k != nil && !k.tight() {
				easy = true
			}
		}
	}
	if !easy {
		for _, order := range c.orders.Roomy(pool, s.units()) {
			try(order)
		}
	}
	return found, err
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
