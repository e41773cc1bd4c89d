package planner

import (
	"math/rand/v2"
	"slices"
	"testing"

	"pnode/pipeline/schedule"
	"pnode/planner/cost"
	"pnode/planner/plan"
)

// TestBestOfAll compares with every shape, order and cut of small clusters with wild
// links: no predicted step is longer than the least in 1F1B. Branch and bound finds the same least.
func TestBestOfAll(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for compared := 0; compared < casesOf(60, 20); {
		in := randomInput(rng)
		in.Members, in.Costs = in.Members[:min(len(in.Members), 3)], in.Costs[:min(len(in.Costs), 7)]
		for i := range in.Members {
			in.Members[i].Profile.Devices = in.Members[i].Profile.Devices[:1]
			in.Members[i].Draining = false
		}
		_, reasons, err := Make(t.Context(), in)
		if err != nil {
			continue
		}
		compared++
		p, err := newProblem(in)
		if err != nil {
			t.Fatal(err)
		}
		c, err := newSearch(p, p.precision().Storages[0])
		if err != nil {
			t.Fatal(err)
		}
		least := c.exhaust(nil)
		checkOptimum(t, in, least)
		if step := schedule.Nanos(stepNanos(reasons)); step > least {
			t.Errorf("%d units, %d layers, %d micro-batches: %s, possible is %s", len(c.problem.devices), c.layers(), in.Run.Train.Micros, plan.Time(step), plan.Time(least))
		}
	}
}

// checkOptimum wants branch and bound to find the least step, from any step that is known, with the cut that takes it.
func checkOptimum(t *testing.T, in Input, least schedule.Nanos) {
	t.Helper()
	for _, known := range []schedule.Nanos{least, least + 1, 2 * least, 1 << 60} {
		best, err := Optimum(t.Context(), in, known, 1<<20)
		if err != nil || best.Step != least || !best.Proven || (best.Groups == nil) != (known == least) {
			t.Fatalf("branch and bound from %s: %+v, %v; all plans: %s", plan.Time(known), best, err, plan.Time(least))
		}
		if best.Groups == nil {
			continue
		}
		if step, err := StepOf(in, best.Groups); err != nil || step != least {
			t.Fatalf("the best cut takes %s, %v, not %s", plan.Time(step), err, plan.Time(least))
		}
	}
	if best, err := Optimum(t.Context(), in, 1<<60, 1); err != nil || best.Proven {
		t.Fatalf("proven with one placement: %+v, %v", best, err)
	}
}

// exhaust is the least simulated step of all ways to go on from an order of units.
func (c *search) exhaust(order []int) schedule.Nanos {
	least := schedule.Nanos(1) << 62
	for replicas := 1; replicas <= len(order); replicas++ {
		if len(order)%replicas == 0 && replicas <= c.in.Run.Train.Micros && len(order)/replicas <= c.layers() {
			least = min(least, c.exhaustCuts(order, shape{replicas, len(order) / replicas}, nil))
		}
	}
	for u := range c.problem.devices {
		if !slices.Contains(order, u) {
			least = min(least, c.exhaust(append(slices.Clone(order), u)))
		}
	}
	return least
}

// roomFor returns the cost model with what partial sums take.
func (c *search) roomFor(s shape) *cost.Model {
	return c.models.with(cost.Parts{Partials: c.partials(s), Exchanged: c.exchanged(s.replicas)}, nil)
}

// exhaustCuts tries every cut for each replica in turn.
func (c *search) exhaustCuts(order []int, s shape, pipes []*pipe) schedule.Nanos {
	least := schedule.Nanos(1) << 62
	if len(pipes) == s.replicas {
		k := &candidate{shape: s, order: c.order, model: c.roomFor(s), pipes: pipes}
		c.estimate(k)
		if k.simulate() == nil {
			least = k.step()
		}
		return least
	}
	units := order[len(pipes)*s.stages : (len(pipes)+1)*s.stages]
	var cuts func(ends []int)
	cuts = func(ends []int) {
		if len(ends) == s.stages-1 {
			if p, err := (cutter{c.problem, c.roomFor(s), c.order}).pipe(units, append(slices.Clone(ends), c.layers())); err == nil {
				least = min(least, c.exhaustCuts(order, s, append(slices.Clone(pipes), p)))
			}
			return
		}
		from := 1
		if len(ends) > 0 {
			from = ends[len(ends)-1] + 1
		}
		for end := from; end <= c.layers()-(s.stages-1-len(ends)); end++ {
			cuts(append(ends, end))
		}
	}
	cuts(nil)
	return least
}
