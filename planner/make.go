package planner

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"pnode/pipeline/model"
	"pnode/planner/plan"
)

// Make gives the plan with the least predicted step time, with reasons. Errors wrap
// ErrBadInput, ErrNotEnoughNodes, ErrNoFit or ErrTooLong.
func Make(in Input) (plan.Plan, plan.Reasons, error) {
	c, best, others, err := decide(in)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	p, err := c.of(best).whole.plan(best)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	aboutHolders := c.assignHolders(&p)
	if err := p.Validate(c.layers(), in.Run.Train.Micros); err != nil {
		return plan.Plan{}, nil, fmt.Errorf("planner: make generation %d: %w", in.Generation, err)
	}
	return p, append(c.of(best).whole.explain(best, others), aboutHolders...), nil
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
func (c *cluster) plan(k *candidate) (plan.Plan, error) {
	p, err := c.skeleton(k)
	if err != nil {
		return plan.Plan{}, err
	}
	_, fixed := c.in.Run.Train.Recompute.Level()
	for r, pipe := range p.Replicas {
		for s := range pipe.Stages {
			place := &pipe.Stages[s]
			if c.in.Run.Train.Storage.Auto {
				place.Storage = c.units[c.find(place.Peer, place.Device)].Storage
			}
			levels, ahead, codec := k.chosen(r, s)
			if !fixed {
				place.Recompute = plan.JoinLevels(levels)
			}
			if s < len(pipe.Stages)-1 {
				place.Codec = codec.String()
				place.Ahead = ahead
			}
		}
	}
	return p, nil
}

// chosen is what a stage of a candidate computes again, how many of its last layers ahead of
// the gradient, and how it sends to the next one.
func (k *candidate) chosen(replica, stage int) (levels []model.Recompute, ahead int, codec plan.Codec) {
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
func (c *cluster) skeleton(k *candidate) (plan.Plan, error) {
	p := plan.Plan{Run: c.in.Run.Run, Generation: c.in.Generation, Start: c.in.Start, Schedule: c.order.spec.String(), Sharded: k.sharded}
	micro := plan.Micro(0)
	for r, pipe := range k.pipes {
		pipes, err := c.order.pipelines(c.lane(pipe, micro, k.shares[r]), plan.Replica(len(p.Replicas)))
		if err != nil {
			return plan.Plan{}, fmt.Errorf("planner: make generation %d: %w", c.in.Generation, err)
		}
		p.Replicas = append(p.Replicas, pipes...)
		micro += plan.Micro(k.shares[r])
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
func (c *cluster) lane(pipe *pipe, first plan.Micro, micros int) plan.ReplicaGroup {
	l := plan.ReplicaGroup{First: first, Micros: micros}
	for s, u := range pipe.units {
		from, end := pipe.layers(s)
		l.Workers = append(l.Workers, plan.WorkerID{Peer: c.units[u].peer, Device: c.units[u].device})
		l.Layers = append(l.Layers, end-from)
	}
	if slices.Contains(plan.WarmUps, c.order.spec.String()) {
		for _, w := range pipe.Warmups {
			l.Warmups = append(l.Warmups, min(w, micros/c.order.copies-1))
		}
	}
	return l
}
