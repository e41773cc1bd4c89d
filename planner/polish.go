package planner

import "context"

// polishWork bounds the search for a better plan of up to dropUpTo devices, in units of optimum.Search.
const polishWork = 1 << 17

// polish returns the best plan in 1F1B that branch and bound finds, nil where none has a shorter step than the best of ranked
// candidates. Rules and small changes, which made these, end where no single change helps. Of many devices there are too many plans.
func (e exact) polish(ctx context.Context, ranked []*candidate) (*candidate, error) {
	pool := e.roomy()
	if len(pool) > dropUpTo || !e.order.elastic() {
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
