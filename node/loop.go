package node

import (
	"context"
	"errors"
	"time"

	"pnode/node/api"
	"pnode/planner"
	"pnode/swarm/consensus"
)

// loop is the run loop: it owns the phase, the current generation and the way out. It
// returns nil when the run is over, or this node has left it.
func (n *Node) loop(ctx, leave context.Context) error {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	leaving := leave.Done()
	for !n.over() {
		select {
		case <-ctx.Done():
			return n.abandon(context.Cause(ctx))
		case <-leaving:
			leaving = nil
			n.startLeaving(ctx)
		case <-n.raft.Changed():
			n.follow(ctx)
		case err := <-n.generationDone():
			n.ended(err)
		case <-tick.C:
			n.beat(ctx)
		}
	}
	return n.windUp(ctx)
}

// generationDone is the result channel of the running generation, nil without one.
func (n *Node) generationDone() <-chan error {
	if n.generation == nil {
		return nil
	}
	return n.generation.done
}

// follow brings this node in line with the replicated state.
func (n *Node) follow(ctx context.Context) {
	state := n.raft.State()
	if state.Plan.Generation > n.followed {
		n.followed = state.Plan.Generation
		n.switchTo(ctx, state)
	}
	n.keeper.follow(ctx, state)
	n.rejoin(ctx, state)
	n.closeRun(ctx, state)
}

// switchTo ends the running generation and begins the state's plan.
func (n *Node) switchTo(ctx context.Context, state consensus.State) {
	if n.generation != nil {
		if err := n.generation.stop(errReplaced); err != nil && !errors.Is(err, errReplaced) {
			n.log.Info("generation ended", "generation", n.generation.plan.Generation, "cause", err)
		}
		n.generation = nil
	}
	n.stalled, n.stalledWhy, n.completed = 0, "", false
	n.hub.Emit(api.Event{Kind: api.KindPlan, Generation: state.Plan.Generation, Step: state.Plan.Start, Message: summary(state.Plan, state.Reasons)})
	if !places(state.Plan, n.self) {
		n.enter(Waiting)
		return
	}
	n.enter(Loading)
	n.generation = n.startGeneration(ctx, state.Plan)
	n.enter(Training)
}

// places tells whether the plan has work for a peer.
func places(plan planner.Plan, peer planner.PeerID) bool {
	for _, p := range plan.Peers() {
		if p == peer {
			return true
		}
	}
	return false
}

// ended takes in the end of the running generation.
func (n *Node) ended(err error) {
	plan := n.generation.plan
	n.generation = nil
	if err == nil {
		n.completed = true
		return
	}
	n.stalled, n.stalledWhy = plan.Generation, err.Error()
	n.log.Warn("gave the generation up, waiting for a new plan", "generation", plan.Generation, "cause", err)
	n.hub.Emit(api.Event{Kind: api.KindState, Generation: plan.Generation, Message: "waiting for a new plan: " + err.Error()})
	n.enter(Waiting)
}

// enter moves the machine on; a draining node stays draining whatever it works on.
func (n *Node) enter(p Phase) {
	if n.machine.phase == Draining && p != Stopped {
		return
	}
	n.machine.to(p)
}
