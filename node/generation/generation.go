package generation

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"pnode/node/checkpointer"
	"pnode/node/hardware"
	"pnode/node/outersteps"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/pipeline/replay"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// Generation carries one plan out on this node: a session of links and a worker for each device here. One goroutine, the
// node's loop, calls its methods.
type Generation struct {
	Parts
	state   consensus.State // whose plan it is
	plan    plan.Plan
	end     context.CancelCauseFunc
	done    chan error              // one result, after the workers have returned
	loaded  chan struct{}           // closed when every worker here has its state
	loading atomic.Int32            // workers here that do not
	held    []*pipeline.Retained    // what is left once done has its result
	from    []*pipeline.Retained    // what the generation before has left, until workers here take it over
	keeper  *checkpointer.PlanSaver // of the workers here, for what is on its way; nil for the usual one
	kept    int                     // layers here whose state stayed in memory; valid once loaded is closed
	sent    *replay.Log             // what workers here send to other nodes
	cadence *checkpointer.Cadence
	stepped chan struct{} // closed when a worker here has made its first step
	newest  atomic.Uint64 // the newest step that a worker here has made
	first   sync.Once     // closes stepped
	session atomic.Pointer[link.Session]
	rounds  map[plan.Replica]*outersteps.Rounds // of replicas here that make local steps
	// substitutes receives who goes on in a lost member's place, once; replaced is set when it has, and is Follow's.
	substitutes chan consensus.Substitute
	replaced    bool
}

// Start begins to carry the state's plan out. The result on Done is nil when all
// workers here finished or stopped on a commit. The generation goes on with the state that the workers of from have in
// memory.
func Start(ctx context.Context, parts Parts, state consensus.State, from []*pipeline.Retained) *Generation {
	ctx, end := context.WithCancelCause(ctx)
	g := &Generation{
		Parts: parts, state: state, plan: state.Plan, end: end, from: from,
		done: make(chan error, 1), loaded: make(chan struct{}),
		sent: parts.Replayer.Begin(state.Plan, consensus.RecoveryLine(state)), cadence: parts.Checkpointer.Cadence(state.Plan, parts.toldBy), stepped: make(chan struct{}),
		substitutes: make(chan consensus.Substitute, 1),
	}
	g.Group.Go(func() error {
		err := g.run(ctx)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		end(nil)
		g.done <- err
		return nil
	})
	return g
}

// Stop ends the generation and blocks until its workers have returned. It takes the result that Done would give.
func (g *Generation) Stop(cause error) error {
	g.end(cause)
	return <-g.done
}

// State returns the state whose plan this is.
func (g *Generation) State() consensus.State { return g.state }

// Done receives how the generation ended, once, after its workers have returned.
func (g *Generation) Done() <-chan error { return g.done }

// Loaded is closed when every worker here has its state.
func (g *Generation) Loaded() <-chan struct{} { return g.loaded }

// Kept returns how many layers here have the state that was in memory, of how many, once Loaded is closed.
func (g *Generation) Kept() (kept, layers int) {
	for _, id := range g.own(g.plan) {
		for _, at := range g.plan.StagesOf(id) {
			layers += g.plan.At(at).Layers.Len()
		}
	}
	return g.kept, layers
}

// Saved takes in that the log has the checkpoint of a step.
func (g *Generation) Saved(step plan.Step) { g.cadence.Committed(step) }

// run runs the workers here until all have finished their steps or one fails. A lost link ends
// the steps; saves under way go on as long as the generation does.
func (g *Generation) run(ctx context.Context) (err error) {
	session := g.Links.Session(g.plan.Generation, g.plan.Peers(), link.Rules{Expect: pipeline.Expected(*g.state.Run, g.plan), Replaceable: g.replaceable, Coordinator: g.plan.Coordinator().Peer})
	g.session.Store(session)
	defer func() {
		if err == nil {
			session.Close()
			return
		}
		// It may wait for a peer that is gone. What is left here does not: the others wait to hear of it.
		g.Group.Go(func() error {
			session.Close()
			return nil
		})
	}()
	defer g.Meter.Follow(session.Stats)()
	session.Warm(pipeline.StepBytes(*g.state.Run), g.plan.Neighbours(g.Self)...) // while the state is being loaded
	defer func() {
		for _, r := range g.from {
			r.Close()
		}
	}()
	g.meet(ctx)
	if lacking := g.keep(); g.plan.Start > 0 {
		keeper, moments := g.Checkpointer.For(g.plan).Fetch(ctx, lacking)
		g.keeper = &keeper
		g.Group.Go(func() error { moments(); return nil })
	}
	here := g.own(g.plan)
	g.loading.Store(int32(len(here)))
	var workers []*pipeline.Worker
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	for _, id := range here {
		w, err := g.newWorker(ctx, id, session)
		if err != nil {
			return hardware.ExplainMemory(err)
		}
		workers = append(workers, w)
		g.kept += w.TookOver()
	}
	err = g.runSteps(ctx, workers, session)
	if err != nil {
		g.end(err) // the saves too
	}
	for _, w := range workers {
		err = errors.Join(err, awaitSaves(ctx, w))
	}
	why := errors.Join(context.Cause(ctx), err)
	g.dropPeers(session, why, err)
	if g.plan.Local == nil && (err == nil || retains(why, g.Self)) { // moments of a replica with local steps are no other one's
		g.held, err = retain(workers, err)
		workers = nil
	}
	if err != nil {
		return err
	}
	// The steps are done here, but on a slow line a neighbour may still wait for the last messages.
	if err := session.Flush(ctx); err != nil && ctx.Err() == nil {
		g.Log.Info("the plan ends before its last messages were read", "cause", err)
	}
	return nil
}

// dropPeers gives up, before the session is closed, those peers that would hold that up: whoever is lost, who has no part in the plan's last outer step
// and reads what it was sent for nothing, and, where the steps failed, who has given the generation up and reads nothing any more.
func (g *Generation) dropPeers(session *link.Session, why, failed error) {
	if lost := (LostPeerError{}); errors.As(why, &lost) {
		session.Drop(lost.fault.Accused, link.ErrGone)
	}
	if m := g.Consensus.State().Merged; m != nil && m.Generation == g.plan.Generation && m.Last {
		counts := g.plan
		counts.Replicas = nil
		for _, r := range m.Counted() {
			counts.Replicas = append(counts.Replicas, g.plan.Replicas[r])
		}
		for _, p := range g.plan.Peers() {
			if p != g.Self && !counts.Places(p) {
				session.Drop(p, link.ErrGaveUp)
			}
		}
	}
	if failed != nil {
		for _, p := range g.Heartbeats.Stalled(g.plan.Peers(), g.plan.Generation, time.Now()).By {
			session.Drop(p, link.ErrGaveUp)
		}
	}
}

// awaitSaves waits for the saves of a worker. One that the next plan has cut short is no failure: the log has these layers from
// another replica, and what is in memory is as good.
func awaitSaves(ctx context.Context, w *pipeline.Worker) error {
	err, wrong := w.Saved(), (*plan.Fault)(nil)
	cut := errors.Is(err, context.Canceled) || errors.Is(err, ErrReplaced)
	if cut && errors.Is(context.Cause(ctx), ErrReplaced) && !errors.As(err, &wrong) {
		return nil
	}
	return err
}

// retain takes workers over that have ended, with an error perhaps.
func retain(workers []*pipeline.Worker, err error) ([]*pipeline.Retained, error) {
	var held []*pipeline.Retained
	for _, w := range workers {
		r, failed := w.Retain()
		held, err = append(held, r), errors.Join(err, failed)
	}
	return held, err
}
