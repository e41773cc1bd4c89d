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
// returns nil when the run is over or this node has left it. leave asks for the latter.
func (n *Node) loop(ctx context.Context, leave <-chan struct{}) error {
	tick := time.NewTicker(time.Second) // for deadlines; everything else is told
	defer tick.Stop()
	for !n.exit.over {
		changed := n.raft.Changed()
		n.follow(ctx)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-leave:
			leave = nil
			n.startLeaving(ctx)
		case <-changed:
		case err := <-n.generationDone():
			n.ended(err)
		case <-tick.C:
		}
		if err := n.checkDeadline(time.Now()); err != nil {
			return err
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

// follow brings this node in line with the replicated state. It is called after every
// event and does nothing where nothing has changed.
func (n *Node) follow(ctx context.Context) {
	state := n.raft.State()
	if state.Plan.Generation > n.followed && n.belongs(state) {
		n.followed = state.Plan.Generation
		n.switchTo(ctx, state)
	}
	if state.Checkpoint.Step > n.kept {
		n.kept = state.Checkpoint.Step
		n.keep(state)
	}
	if state.Epoch != n.seatEpoch {
		n.seatEpoch = state.Epoch
		if err := n.saveSeat(); err != nil {
			n.log.Warn("a restart may not find the others", "cause", err)
		}
	}
	n.rejoin(ctx, state)
	n.followExit(ctx, state)
}

// switchTo ends the running generation and begins the state's plan.
func (n *Node) switchTo(ctx context.Context, state consensus.State) {
	n.stopGeneration(errReplaced)
	n.setStalled(0, nil)
	n.completed = false
	n.hub.Publish(api.Event{
		Kind: api.KindPlan, Generation: state.Plan.Generation, Step: state.Plan.Start,
		Message: summarize(state.Plan, state.Reasons),
	})
	if !places(state.Plan, n.self) {
		n.enter(Waiting)
		return
	}
	n.enter(Loading)
	n.generation = n.startGeneration(ctx, state.Plan)
	n.enter(Training)
}

// stopGeneration ends the running generation, if there is one, and waits for it.
func (n *Node) stopGeneration(cause error) {
	if n.generation == nil {
		return
	}
	if err := n.generation.stop(cause); err != nil && !errors.Is(err, cause) {
		n.log.Info("generation ended", "generation", n.generation.plan.Generation, "cause", err)
	}
	n.generation = nil
}

// belongs tells whether the plan was made with this process in the roster: one from
// before it started is not carried out.
func (n *Node) belongs(state consensus.State) bool {
	m, ok := state.Member(n.self)
	return ok && m.Boot == n.boot && !state.Reborn(m)
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
	n.setStalled(plan.Generation, err)
	n.log.Warn("gave the generation up, waiting for a new plan", "generation", plan.Generation, "cause", err)
	n.hub.Publish(api.Event{Kind: api.KindError, Generation: plan.Generation, Message: "waiting for a new plan: " + err.Error()})
	n.enter(Waiting)
}

// enter moves the machine on; a draining node stays draining whatever it works on.
func (n *Node) enter(p Phase) {
	if n.machine.phase == Draining && p != Stopped {
		return
	}
	n.machine.to(p)
}

// keep stores a newly committed checkpoint's manifest and collects what it replaces, on
// a goroutine of its own; the one before is waited for.
func (n *Node) keep(state consensus.State) {
	n.hub.Publish(api.Event{Kind: api.KindCheckpoint, Generation: state.Checkpoint.Generation, Step: state.Checkpoint.Step})
	n.shared.mu.Lock()
	n.shared.savedAt = time.Now()
	n.shared.mu.Unlock()
	previous := n.keeping
	done := make(chan struct{})
	n.keeping = done
	n.group.Go(func() error {
		defer close(done)
		if previous != nil {
			<-previous
		}
		if err := n.keeper.committed(state.Run.Run, state.Checkpoint, state.Run.Train.KeepCheckpoints); err != nil {
			n.log.Warn("checkpoint", "cause", err)
		}
		return nil
	})
}

// rejoin enters the roster again when this node was counted as gone while it lives.
func (n *Node) rejoin(ctx context.Context, state consensus.State) {
	m, ok := state.Member(n.self)
	if !ok || m.Boot != n.boot || m.State != consensus.Gone || n.exit.leaving || n.tasks.rejoin.busy() {
		return
	}
	n.log.Warn("the others counted this node as gone, joining again", "reason", m.Reason)
	n.tasks.rejoin.start(&n.group, func() {
		if err := n.enroll(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("join again", "cause", err)
		}
	})
}
