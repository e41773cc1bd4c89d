package generation

import (
	"context"
	"maps"
	"slices"
	"time"

	"pnode/node/checkpointer"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// newWorker makes the worker of one device here.
func (g *Generation) newWorker(ctx context.Context, id plan.WorkerID, session *link.Session) (*pipeline.Worker, error) {
	device, err := g.Hardware.Device(id.Device)
	if err != nil {
		return nil, err
	}
	exchange := g.sent.Keep(session)
	if g.Exchange != nil {
		exchange = g.Exchange(id, exchange)
	}
	c := g.training(job{id, g.plan, device, exchange})
	c.From, c.Commits, c.Late, c.Loaded = g.before(id), g.Commits, true, g.Ready
	c.Keeper = g.saver()
	c.OnStep = func(r pipeline.StepResult) { g.step(session, id, r) }
	c.OnLoaded = func() {
		if g.loading.Add(-1) == 0 {
			close(g.loaded)
			g.Group.Go(func() error { g.settle(ctx); return nil })
		}
	}
	if err := g.local(&c); err != nil {
		return nil, err
	}
	return pipeline.New(c)
}

// saver returns what saves and loads the state of the workers here.
func (g *Generation) saver() checkpointer.PlanSaver {
	if g.keeper != nil {
		return *g.keeper
	}
	return g.Checkpointer.For(g.plan)
}

// training returns what workers have in common that make the generation's steps: this node's own, and those in a lost member's place.
func (g *Generation) training(j job) pipeline.Config {
	c := g.config(g.state, j)
	before, _ := g.Heartbeats.Last(g.Self)
	c.Usual, c.Due, c.Next, c.Stop, c.Trace = time.Duration(before.StepNanos), g.due, g.Next(j.plan), g.stops, g.Trace
	return c
}

// stops reports to the coordinator that the plan ends with its next commit: the run is to stop or another plan follows.
func (g *Generation) stops() bool {
	now := g.Consensus.State()
	return now.StopWanted || now.Paused()
}

// due reports to the coordinator whether the state after a step is to be saved. At the end of a warm-up before local steps it is: the next plan begins there or soon
// after it.
func (g *Generation) due(step plan.Step) bool {
	state := g.Consensus.State()
	if run := state.Run; run != nil && g.plan.Local == nil && run.Train.Sync.Local && step == run.Train.Sync.WarmupEnd(run.Train.Steps) {
		return true
	}
	forgets, leftOut := g.sent.Full(state.Checkpoint.Step), []plan.Step(nil)
	for _, p := range g.plan.Peers() {
		if b, _ := g.Heartbeats.Last(p); b.Generation == g.plan.Generation {
			forgets = forgets || b.Kept > state.Checkpoint.Step+1
			if slices.Contains(consensus.Unsaved(state, b.LeftOut), p) {
				leftOut = append(leftOut, b.LeftOut)
			}
		}
	}
	if g.Heartbeats.Copying(g.plan) { // the next save would wait for the one that is written, and steps for it
		leftOut = nil
	}
	return g.cadence.Due(step, state, forgets, leftOut...)
}

// step takes in a step of a worker here. With the first one all members have what they begin with: from then on bulk gives
// way to messages, and copies are made.
func (g *Generation) step(session *link.Session, id plan.WorkerID, r pipeline.StepResult) {
	g.record(g.plan, id, r)
	g.Watch.Step(r)
	for old := g.newest.Load(); uint64(r.Step) > old && !g.newest.CompareAndSwap(old, uint64(r.Step)); old = g.newest.Load() {
	}
	g.first.Do(func() {
		session.Settled()
		close(g.stepped)
	})
}

// settle tells the others what this node has loaded, and has its holders fetch copies, while the steps run.
func (g *Generation) settle(ctx context.Context) {
	saver := g.Checkpointer.For(g.plan)
	if err := saver.Settle(ctx, g.stepped); err != nil && ctx.Err() == nil {
		g.Log.Warn("the state at the start of the plan has no copy", "generation", g.plan.Generation, "cause", err)
	}
	if err := saver.KeepCopies(ctx); err != nil && ctx.Err() == nil {
		g.Log.Warn("the newest checkpoint has lost a copy", "generation", g.plan.Generation, "cause", err)
	}
}

// keep frees what the generation before has left, but for state that the plan has on the same devices. It returns the layers
// that stages here lack. Replicas with local steps begin with what is stored.
func (g *Generation) keep() (lacking []int) {
	kept := map[plan.StageID][]int{}
	for g.plan.Local != nil && len(g.from) > 0 {
		g.from[0].Close()
		g.from = g.from[1:]
	}
	for _, r := range g.from {
		maps.Copy(kept, r.Keep(g.plan))
	}
	for _, id := range g.own(g.plan) {
		for _, at := range g.plan.StagesOf(id) {
			for l := g.plan.At(at).Layers.First; l < g.plan.At(at).Layers.End; l++ {
				if !slices.Contains(kept[at], l) {
					lacking = append(lacking, l)
				}
			}
		}
	}
	return lacking
}

// before returns what the generation before has left on a device, for its worker to take over; nil where that is nothing.
func (g *Generation) before(id plan.WorkerID) *pipeline.Retained {
	i := slices.IndexFunc(g.from, func(r *pipeline.Retained) bool { return r.Worker() == id })
	if i < 0 {
		return nil
	}
	r := g.from[i]
	g.from = slices.Delete(g.from, i, i+1)
	return r
}
