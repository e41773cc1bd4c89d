package planner

import (
	"fmt"

	"pnode/planner/sim"
)

// Predict times a step of any plan with the input's costs and profiles: what it would
// take now. Errors wrap ErrBadPlan, also when a device of the plan is not among the
// members.
func Predict(in Input, p Plan) (sim.Result, error) {
	if err := in.check(); err != nil {
		return sim.Result{}, err
	}
	c, err := newCluster(in)
	if err != nil {
		return sim.Result{}, err
	}
	return c.predict(p)
}

func (c *cluster) predict(p Plan) (sim.Result, error) {
	if err := p.Validate(c.layers(), c.in.Run.Train.Micros); err != nil {
		return sim.Result{}, err
	}
	k, err := c.adopt(p)
	if err != nil {
		return sim.Result{}, err
	}
	c.estimate(k)
	result, err := sim.Run(k.job)
	if err != nil {
		return sim.Result{}, fmt.Errorf("planner: predict generation %d: %w", p.Generation, err)
	}
	return result, nil
}

// adopt is a plan as a candidate, as far as the plan itself says: units, layers, shares,
// warm-ups.
func (c *cluster) adopt(p Plan) (*candidate, error) {
	k := &candidate{}
	if len(p.Replicas) > 0 {
		k.shape = shape{len(p.Replicas), len(p.Replicas[0].Stages)}
	}
	for r, pipe := range p.Replicas {
		var units, ends []int
		for s, pl := range pipe.Stages {
			u := c.find(pl.Peer, pl.Device)
			if u < 0 {
				return nil, fmt.Errorf("%w: replica %d stage %d is on %s of %s, which is not there", ErrBadPlan, r, s, pl.Device, pl.Peer)
			}
			if pl.Layers.End > c.layers() || pl.Layers.Len() < 1 || pl.Layers.First < 0 {
				return nil, fmt.Errorf("%w: replica %d stage %d has layers [%d,%d) of %d", ErrBadPlan, r, s, pl.Layers.First, pl.Layers.End, c.layers())
			}
			units, ends = append(units, u), append(ends, pl.Layers.End)
		}
		timed := c.timePipe(units, ends)
		timed.warmups = pipe.Warmups
		timed.period = timed.costs.Period(pipe.Warmups)
		k.pipes = append(k.pipes, timed)
		k.shares = append(k.shares, pipe.Micros)
	}
	return k, nil
}
