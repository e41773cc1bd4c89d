package planner

import (
	"fmt"

	"pnode/pipeline/model"
	"pnode/pipeline/schedule"
	"pnode/planner/cost"
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
	c.of(k).estimate(k)
	result, err := sim.Run(k.job)
	if err != nil {
		return sim.Result{}, fmt.Errorf("planner: predict generation %d: %w", p.Generation, err)
	}
	return result, nil
}

// adopt is a plan as a candidate, as far as the plan itself says: units, layers, shares,
// warm-ups.
func (c *cluster) adopt(p Plan) (*candidate, error) {
	lanes, err := p.Lanes()
	if err != nil {
		return nil, err
	}
	c = c.under(p)
	k := &candidate{sharded: p.Sharded}
	if len(lanes) > 0 {
		k.shape = shape{len(lanes), len(lanes[0].Seats)}
	}
	for i, lane := range lanes {
		var units, ends []int
		levels := make([][]model.Recompute, len(lane.Seats))
		end := 0
		codecs, err := p.Replicas[i*len(p.Replicas)/len(lanes)].codecs()
		if err != nil {
			return nil, err
		}
		for i, seat := range lane.Seats {
			u := c.find(seat.Peer, seat.Device)
			if u < 0 {
				return nil, fmt.Errorf("%w: %s of %s is not there", ErrBadPlan, seat.Device, seat.Peer)
			}
			if end += lane.Layers[i]; lane.Layers[i] < 1 || end > c.layers() {
				return nil, fmt.Errorf("%w: %s of %s has layers up to %d of %d", ErrBadPlan, seat.Device, seat.Peer, end, c.layers())
			}
			if lane.Recompute != nil {
				if levels[i], err = lane.Recompute[i].Expand(lane.Layers[i]); err != nil {
					return nil, err
				}
			}
			units, ends = append(units, u), append(ends, end)
		}
		k.pipes = append(k.pipes, c.timeLane(lane, units, ends, levels, codecs))
		k.shares = append(k.shares, lane.Micros)
	}
	return k, nil
}

// timeLane is a lane as a pipe. Under schedules without warm-ups it is timed with those that
// a plan would have.
func (c *cluster) timeLane(l Lane, units, ends []int, levels [][]model.Recompute, codecs []cost.Codec) *pipe {
	if l.Warmups == nil {
		if p, err := c.newPipe(units, ends); err == nil {
			return p
		}
		l.Warmups = schedule.DepthWarmups(len(units), 1)
	}
	p := c.adoptPipe(units, ends, levels, codecs)
	p.Warmups, p.Period = l.Warmups, p.Costs.Period(l.Warmups)
	return p
}
