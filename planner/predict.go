package planner

import (
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/plan"
	"pnode/planner/sim"
)

// Predict times a step of any plan with the input's costs and profiles: what it would
// take now. Errors wrap ErrBadPlan, also when a device of the plan is not among the
// members.
func Predict(in Input, p plan.Plan) (sim.Result, error) {
	if err := in.check(); err != nil {
		return sim.Result{}, err
	}
	c, err := newCluster(in, in.storingOf(p))
	if err != nil {
		return sim.Result{}, err
	}
	return c.predict(p)
}

func (c *cluster) predict(p plan.Plan) (sim.Result, error) {
	if err := p.Validate(c.layers(), c.in.Run.Train.Micros); err != nil {
		return sim.Result{}, err
	}
	k, err := c.adopt(p)
	if err != nil {
		return sim.Result{}, err
	}
	if err := c.of(k).estimate(k); err != nil {
		return sim.Result{}, err
	}
	result, err := sim.Run(k.job)
	if err != nil {
		return sim.Result{}, fmt.Errorf("planner: predict generation %d: %w", p.Generation, err)
	}
	return result, nil
}

// adopt is a plan as a candidate, as far as the plan itself says: units, layers, shares,
// warm-ups, and what its stages recompute and send.
func (c *cluster) adopt(p plan.Plan) (*candidate, error) {
	lanes, err := p.ReplicaGroups()
	if err != nil {
		return nil, err
	}
	c = c.under(p)
	k := &candidate{sharded: p.Sharded, away: c.site.Away}
	if len(lanes) > 0 {
		k.shape = shape{len(lanes), len(lanes[0].Workers)}
	}
	for _, lane := range lanes {
		pipe, err := c.adoptLane(lane)
		if err != nil {
			return nil, err
		}
		k.pipes, k.shares = append(k.pipes, pipe), append(k.shares, lane.Micros)
	}
	if p.Elastic() && c.order.elastic() {
		return k, c.adoptChoices(k, p)
	}
	if k.layout, err = c.layoutOf(p); err == nil {
		err = c.site.Time(k.layout)
	}
	return k, err
}

// adoptLane is a lane as a pipe that has nothing but units and layers.
func (c *cluster) adoptLane(lane plan.ReplicaGroup) (*pipe, error) {
	p := &pipe{}
	end := 0
	for i, seat := range lane.Workers {
		u := c.find(seat.Peer, seat.Device)
		if u < 0 {
			return nil, fmt.Errorf("%w: %s of %s is not there", plan.ErrBadPlan, seat.Device, seat.Peer)
		}
		if end += lane.Layers[i]; lane.Layers[i] < 1 || end > c.layers() {
			return nil, fmt.Errorf("%w: %s of %s has layers up to %d of %d", plan.ErrBadPlan, seat.Device, seat.Peer, end, c.layers())
		}
		p.units, p.ends = append(p.units, u), append(p.ends, end)
	}
	p.Costs = c.problem(p).Costs(slices.Repeat([]plan.Codec{plan.CodecF32}, len(p.units)-1))
	p.Warmups = schedule.DepthWarmups(len(p.units), 1)
	p.Period = p.Costs.Period(p.Warmups)
	return p, nil
}

// adoptChoices times the pipes of an elastic plan with its warm-ups, codecs and recomputation.
func (c *cluster) adoptChoices(k *candidate, plan plan.Plan) (err error) {
	for r, p := range k.pipes {
		pipe := plan.Replicas[r]
		if p.Codecs, err = pipe.Codecs(); err != nil {
			return err
		}
		p.Recompute, p.Ahead = make([][]model.Recompute, len(pipe.Stages)), make([]int, len(pipe.Stages))
		for s, place := range pipe.Stages {
			p.Ahead[s] = place.Ahead
			if place.Recompute == "" {
				continue
			}
			if p.Recompute[s], err = place.Recompute.Expand(place.Layers.Len()); err != nil {
				return err
			}
		}
		p.Costs = c.againAt(p, c.problem(p))
		p.Warmups, p.Period = pipe.Warmups, p.Costs.Period(pipe.Warmups)
	}
	return nil
}
