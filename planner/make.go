package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"pnode/planner/plan"
)

// Make returns the plan with the least predicted step time, with reasons. Errors wrap
// plan.ErrBadInput, ErrNotEnoughNodes, ErrNoFit or plan.ErrTooLong, and ctx's when that ends the search.
func Make(ctx context.Context, in Input) (plan.Plan, plan.Reasons, error) {
	s, best, others, err := decide(ctx, in)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	s, best, others = orFewer(ctx, in, s, best, others)
	return finish(s, best, others, func(*plan.Plan) {})
}

// finish returns the chosen candidate as a plan with reasons, and with holders, some of which hold says.
func finish(s *search, best *candidate, others []*candidate, hold func(*plan.Plan)) (plan.Plan, plan.Reasons, error) {
	p, err := s.write(best)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	hold(&p)
	reasons := append(explain(s, best, others), s.assignHolders(&p)...)
	reasons = append(reasons, s.copyReason(p, best.step())...)
	if err := p.Validate(s.layers(), s.in.Run.Train.Sums()); err != nil {
		return plan.Plan{}, nil, fmt.Errorf("planner: make generation %d: %w", s.in.Generation, err)
	}
	return p, reasons, nil
}

// yieldTimes is how many times as long a step with all replicas that were asked for may take as one with fewer. Replicas with local steps wait for the
// slowest in every round, and it has one group of micro-batches at least.
const yieldTimes = 2

// orFewer returns what decide has found, or the same for fewer replicas than were asked for, where these make local steps and are so unlike that a step of fewer takes
// half as long. The search that it returns asks for those of its candidate.
func orFewer(ctx context.Context, in Input, s *search, best *candidate, others []*candidate) (*search, *candidate, []*candidate) {
	asked := in.Run.Train.Replicas
	for s.apart && unlike(s.devices) && in.Run.Train.Replicas > 1 {
		in.Run.Train.Replicas--
		fewer, quicker, rest, err := decide(ctx, in)
		if err != nil || quicker.step()*yieldTimes > best.step() {
			break
		}
		fewer.yields = fmt.Sprintf("%d of %s that were asked for: with one more a step would take %s, since each waits for the slowest",
			in.Run.Train.Replicas, plan.Count(asked, "replica"), plan.Time(best.step()))
		s, best, others = fewer, quicker, rest
	}
	return s, best, others
}

// unlike reports whether a device computes less than half as fast as another one.
func unlike(devices []device) bool {
	speed := func(a, b device) int { return cmp.Compare(a.profile.MatMulFLOPS, b.profile.MatMulFLOPS) }
	least, most := slices.MinFunc(devices, speed), slices.MaxFunc(devices, speed)
	return least.profile.MatMulFLOPS < most.profile.MatMulFLOPS/yieldTimes
}

// decide searches in each precision until something fits. It returns the chosen candidate with the
// others that it looked at.
func decide(ctx context.Context, in Input) (s *search, best *candidate, others []*candidate, err error) {
	if err := in.check(); err != nil {
		return nil, nil, nil, err
	}
	p, err := newProblem(in)
	if err != nil {
		return nil, nil, nil, err
	}
	var unfit error // in the first precision, which says what is best
	for _, as := range p.precision().Storages {
		if s, err = newSearch(p, as); err != nil {
			return nil, nil, nil, err
		}
		found, err := s.run(ctx)
		if errors.Is(err, ErrNoFit) {
			unfit = cmp.Or(unfit, err)
			continue
		}
		if err != nil {
			return nil, nil, nil, err
		}
		if found, err = s.settle(ctx, found); err != nil {
			return nil, nil, nil, err
		}
		best, others = s.choose(found)
		best = s.prune(best)
		if err := s.widen(best); err != nil {
			return nil, nil, nil, fmt.Errorf("planner: codecs of %v: %w", best.shape, err)
		}
		s.postValidate(best)
		return s, best, others, ended(ctx)
	}
	return nil, nil, nil, unfit
}

// ended returns why a search should not go on, nil where it should.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("planner: the search was ended: %w", context.Cause(ctx))
}
