package planner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/planner/cost"
)

// Make gives the plan with the least predicted step time, with reasons. Errors wrap
// ErrBadInput, ErrNotEnoughNodes, ErrNoFit or ErrTooLong.
func Make(in Input) (Plan, Reasons, error) {
	c, best, others, err := decide(in)
	if err != nil {
		return Plan{}, nil, err
	}
	plan, err := c.of(best).whole.plan(best)
	if err != nil {
		return Plan{}, nil, err
	}
	if err := plan.Validate(c.layers(), in.Run.Train.Micros); err != nil {
		return Plan{}, nil, fmt.Errorf("planner: make generation %d: %w", in.Generation, err)
	}
	return plan, c.of(best).whole.explain(best, others), nil
}

// decide is Make up to the chosen candidate; others are the rest that were looked at.
func decide(in Input) (c *cluster, best *candidate, others []*candidate, err error) {
	if err := in.check(); err != nil {
		return nil, nil, nil, err
	}
	for _, store := range in.storings() {
		var fail error
		if c, best, others, fail = decideFor(in, store); !errors.Is(fail, ErrNoFit) {
			return c, best, others, fail
		}
		err = cmp.Or(err, fail) // the first says what is best
	}
	return nil, nil, nil, err
}

// decideFor is decide for one way to store.
func decideFor(in Input, store storing) (c *cluster, best *candidate, others []*candidate, err error) {
	if c, err = newCluster(in, store); err != nil {
		return nil, nil, nil, err
	}
	found, err := c.search()
	if err != nil {
		return nil, nil, nil, err
	}
	if found, err = c.settle(found); err != nil {
		return nil, nil, nil, err
	}
	best, others = c.choose(c.group(found))
	best = c.of(best).trimSharing(best)
	best = c.of(best).trimOffload(best)
	if err := c.of(best).widen(best); err != nil {
		return nil, nil, nil, fmt.Errorf("planner: codecs of %v: %w", best.shape, err)
	}
	return c, best, others, nil
}

// plan writes a candidate down.
func (c *cluster) plan(k *candidate) (Plan, error) {
	p, err := c.skeleton(k)
	if err != nil {
		return Plan{}, err
	}
	_, fixed := c.in.Run.Train.Recompute.Level()
	for r, pipe := range p.Replicas {
		for s := range pipe.Stages {
			place := &pipe.Stages[s]
			if c.in.Run.Train.Storage.auto {
				place.Storage = c.units[c.find(place.Peer, place.Device)].Storage
			}
			levels, ahead, codec := k.chosen(r, s)
			if !fixed {
				place.Recompute = JoinLevels(levels)
			}
			if s < len(pipe.Stages)-1 {
				place.Codec = codec.String()
				place.Ahead = ahead
			}
		}
	}
	c.assignHolders(&p)
	return p, nil
}

// chosen is what a stage of a candidate computes again, how many of its last layers ahead of
// the gradient, and how it sends to the next one.
func (k *candidate) chosen(replica, stage int) (levels []model.Recompute, ahead int, codec cost.Codec) {
	if k.layout != nil {
		if codecs := k.layout.Codecs[replica]; stage < len(codecs) {
			codec = codecs[stage]
		}
		at := k.layout.Rows[replica][stage]
		return at.Levels, at.Ahead, codec
	}
	p := k.pipes[replica]
	if stage < len(p.Codecs) {
		codec = p.Codecs[stage]
	}
	return p.Recompute[stage], p.Ahead[stage], codec
}

// skeleton has a candidate's stages where they are: pipes become lanes, on which the schedule
// places them.
func (c *cluster) skeleton(k *candidate) (Plan, error) {
	p := Plan{Run: c.in.Run.Run, Generation: c.in.Generation, Start: c.in.Start, Schedule: c.order.spec.String(), Sharded: k.sharded}
	micro := Micro(0)
	for r, pipe := range k.pipes {
		pipes, err := c.order.pipelines(c.lane(pipe, micro, k.shares[r]), Replica(len(p.Replicas)))
		if err != nil {
			return Plan{}, fmt.Errorf("planner: make generation %d: %w", c.in.Generation, err)
		}
		p.Replicas = append(p.Replicas, pipes...)
		micro += Micro(k.shares[r])
	}
	for _, pipe := range p.Replicas {
		for s := range pipe.Stages {
			place := &pipe.Stages[s]
			place.Offload = k.away != nil && k.away[c.find(place.Peer, place.Device)]
		}
	}
	return p, nil
}

// lane is a pipe's units in order, with a share of the micro-batches.
func (c *cluster) lane(pipe *pipe, first Micro, micros int) Lane {
	l := Lane{First: first, Micros: micros}
	for s, u := range pipe.units {
		from, end := pipe.layers(s)
		l.Seats = append(l.Seats, Seat{c.units[u].peer, c.units[u].device})
		l.Layers = append(l.Layers, end-from)
	}
	if slices.Contains(warmUps, c.order.spec.String()) {
		for _, w := range pipe.Warmups {
			l.Warmups = append(l.Warmups, min(w, micros/c.order.copies-1))
		}
	}
	return l
}
