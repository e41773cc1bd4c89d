package planner

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"pnode/planner/plan"
)

// Make returns the plan with the least predicted step time, with reasons. Errors wrap
// plan.ErrBadInput, ErrNotEnoughNodes, ErrNoFit or plan.ErrTooLong, and ctx's when that ends the search.
func Make(ctx context.Context, in Input) (plan.Plan, plan.Reasons, error) {
	s, best, others, err := decide(ctx, in)
	if err != nil {
		return plan.Plan{}, nil, err
	}
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
	for _, as := range p.storages() {
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
