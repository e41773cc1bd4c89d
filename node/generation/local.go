package generation

import (
	"context"
	"slices"

	"pnode/node/outersteps"
	"pnode/pipeline"
	"pnode/pipeline/gather"
	"pnode/planner/plan"
)

// replicaOf returns which replica a worker of a local plan is in: no device is in two.
func replicaOf(p plan.Plan, id plan.WorkerID) plan.Replica {
	return plan.Replica(slices.IndexFunc(p.Replicas, func(pipe plan.Pipeline) bool {
		return slices.ContainsFunc(pipe.Stages, func(at plan.Placement) bool { return at.Worker() == id })
	}))
}

// needed returns the peers without which the workers of one here cannot go on: those of its replicas where these make local steps, else all of
// the plan.
func needed(p plan.Plan, self plan.PeerID) []plan.PeerID {
	if p.Local == nil {
		return p.Peers()
	}
	var own plan.Plan
	for _, pipe := range p.Replicas {
		if slices.ContainsFunc(pipe.Stages, func(at plan.Placement) bool { return at.Peer == self }) {
			own.Replicas = append(own.Replicas, pipe)
		}
	}
	return own.Peers()
}

// meet begins to tell the log what replicas here have of each round, where their coordinators are here.
func (g *Generation) meet(ctx context.Context) {
	if g.plan.Local == nil {
		return
	}
	g.rounds = map[plan.Replica]*outersteps.Rounds{}
	for _, id := range g.own(g.plan) {
		r := replicaOf(g.plan, id)
		if g.rounds[r] != nil {
			continue
		}
		rounds := outersteps.New(outersteps.Config{Log: g.Consensus, Plan: g.plan, Replica: r, Words: g.Words, Out: g.Log})
		g.rounds[r] = rounds
		if plan.CoordinatorOf(g.plan, r).Peer == g.Self {
			g.Group.Go(func() error { rounds.Run(ctx); return nil })
		}
	}
}

// local has a worker make the inner steps of its replica, and outer ones with the others. It changes nothing of a plan without local steps. The replica's
// coordinator tells what counted of the steps, once an outer one is made.
func (g *Generation) local(c *pipeline.Config) error {
	if g.plan.Local == nil {
		return nil
	}
	processor, err := g.Hardware.Processor()
	if err != nil {
		return err
	}
	r := replicaOf(g.plan, c.Worker)
	whole, onStep, coordinates := c.Run, c.OnStep, c.Worker == plan.CoordinatorOf(g.plan, r)
	c.Run, c.Plan = plan.Alone(whole, g.plan, r)
	c.Replica, c.First, c.Keeper, c.Commits, c.Next = r, g.plan.Replicas[r].FirstMicro, g.saver().Of(r), nil, nil
	c.OnStep = func(s pipeline.StepResult) {
		if !s.Final {
			s.Replica = &r
		}
		for i := range s.Stages {
			s.Stages[i].Replica = r // alone it is the first one
		}
		onStep(s)
	}
	id := c.Worker
	c.Local = &pipeline.Local{
		Run: whole, Plan: g.plan, Lineage: g.state.Partings.Of(g.plan.Generation), Rounds: g.rounds[r], Processor: processor, Keys: g.Keys,
		OnOuterStep: func(o gather.Outcome) {
			g.Words.Made(g.plan, id, r, o)
			if coordinates {
				g.Watch.Counted(steps(g.plan, whole.Train.Steps, o))
			}
		},
	}
	return nil
}

// steps returns the run's steps of a round as its outer step counts them; none where losses are missing here.
func steps(p plan.Plan, last plan.Step, o gather.Outcome) (all []pipeline.StepResult) {
	for i, loss := range o.Losses(p) {
		all = append(all, pipeline.StepResult{Step: o.From + plan.Step(i) + 1, Loss: loss})
	}
	first := 0 // after the outer step before, since which replica 0 has evaluated
	if o.From > p.Start {
		first = int(p.Local.MergedAt(o.From, last) - o.From)
	}
	if first < len(all) {
		all[first].HeldOut, all[first].HeldOutF32 = o.HeldOut()
	}
	return all
}
