package planner

import (
	"context"
	"slices"

	"pnode/planner/neighbours"
	"pnode/planner/optimum"
)

const (
	// improveWork bounds the neighbours that are made in one search: it is the product of their devices and layers in all.
	improveWork = 1 << 17
	// improveFrom is how many of the best candidates are improved of up to dropUpTo devices, of more only the best one. Besides these
	// the best ones of up to improveShapes shapes are, in the order of their steps.
	improveFrom   = 3
	improveShapes = 8
)

// walker looks for better plans by small changes.
type walker struct{ *search }

// improve adds to ranked candidates what becomes of the best ones by small changes. Steps that are bounded by many messages or few
// micro-batches have no formula that says which order and cut is best. A walk ends where no single change helps, so that it begins
// from several shapes: what is best of many devices has often far fewer stages than there are devices.
func (s walker) improve(ctx context.Context, pool []int, ranked []*candidate) []*candidate {
	if !s.order.elastic() || len(s.problem.devices) > settleUpTo {
		return ranked
	}
	left, least := improveWork/s.layers(), optimum.NewFloor(s.planned(pool))
	var best *candidate
	ended := false // where the walk to best ended no single change helps
	from := func(k *candidate, work int) {
		at := k
		w := s.walk(pool)
		w.Left = work
		w.Skip = func(a neighbours.Arrangement) bool {
			return a.Replicas == 1 && least.Step(a.Devices, a.Ends) >= at.step()
		}
		w.Try = func(a neighbours.Arrangement) (neighbours.Arrangement, bool) {
			next := s.neighbour(ctx, at, a)
			if next == nil {
				return a, false
			}
			at = next
			return next.arrangement(), true
		}
		w.From(k.arrangement())
		if left -= work - max(0, w.Left); at != k {
			ranked = append(ranked, at)
		}
		if best == nil || at.step() < best.step() {
			best, ended = at, w.Left > 0
		}
	}
	for i, k := range s.starts(ranked) {
		if k.simulated || k.simulate() == nil {
			from(k, left/min(2+2*i, 4))
		}
	}
	if best != nil && !ended {
		from(best, left)
	}
	slices.SortStableFunc(ranked, byStep)
	return ranked
}

// starts returns the ranked candidates that are improved.
func (s walker) starts(ranked []*candidate) (starts []*candidate) {
	usual := 1
	if len(s.problem.devices) <= dropUpTo {
		usual = improveFrom
	}
	tried := map[shape]bool{}
	for i, k := range ranked {
		worth := k.step() <= 2*ranked[0].step()
		if i < usual || worth && !tried[k.shape] && len(tried) < improveShapes {
			starts, tried[k.shape] = append(starts, k), true
		}
	}
	return starts
}

// walk begins a walk over plans on a pool's devices.
func (s walker) walk(pool []int) *neighbours.Walk {
	w := &neighbours.Walk{Pool: pool, Like: make([]int, len(s.problem.devices)), FewestStages: 1, MostStages: s.layers()}
	for d := range w.Like {
		w.Like[d] = d
	}
	twins := s.planned(pool).Twins()
	for _, d := range pool {
		if twins[d] >= 0 {
			w.Like[d] = w.Like[twins[d]]
		}
	}
	if asked := s.in.Run.Train.Stages; asked > 0 {
		w.FewestStages, w.MostStages = asked, asked
	} else if s.in.Run.CheckMessages(2) != nil {
		w.MostStages = 1
	}
	return w
}

// neighbour returns the candidate of a neighbour of one where its step is shorter, else nil.
func (s walker) neighbour(ctx context.Context, of *candidate, a neighbours.Arrangement) *candidate {
	if ctx.Err() != nil {
		return nil
	}
	k, err := s.arranged(of, a)
	if err != nil || k.estimate > of.step()+of.step()*estimatePercent/100 || k.simulate() != nil || k.step() >= of.step() {
		return nil
	}
	return k
}
