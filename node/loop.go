package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/node/leader"
	"pnode/swarm/admission"

	"pnode/checkpoint"
	"pnode/kernels"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/pipeline"
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
		case err := <-n.broken:
			return err
		case <-leave:
			leave = nil
			n.startLeaving()
		case <-n.generationLoaded():
			n.generation.loaded = nil
			n.enter(Training)
		case <-changed:
		case err := <-n.generationDone():
			if err := n.ended(err); err != nil {
				return err
			}
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

// generationLoaded is closed when the workers here have their state.
func (n *Node) generationLoaded() <-chan struct{} {
	if n.generation == nil {
		return nil
	}
	return n.generation.loaded
}

// follow brings this node in line with the replicated state. It is called after every
// event and does nothing where nothing has changed.
func (n *Node) follow(ctx context.Context) {
	state := n.raft.State()
	if state.Plan.Generation > n.followed && n.belongs(state) {
		n.followed = state.Plan.Generation
		n.switchTo(ctx, state)
	}
	n.followCheckpoint(state)
	for _, g := range state.Grants {
		n.grants.Bind(admission.Serial(g.Serial), g.Peers...)
	}
	if state.Epoch != n.seatEpoch {
		n.seatEpoch = state.Epoch
		n.monitor.RosterChanged(state)
		if err := n.saveSeat(); err != nil {
			n.log.Warn("a restart may not find the others", "cause", err)
		}
	}
	n.rejoin(ctx, state)
	n.followExit(ctx, state)
}

// followCheckpoint acts on a newly committed checkpoint, or on the way back to an older one.
func (n *Node) followCheckpoint(state consensus.State) {
	id := checkpointer.IDOf(state.Checkpoint)
	if id == n.kept {
		return
	}
	e := api.Event{Kind: api.KindCheckpoint, Generation: id.Generation, Step: id.Step}
	if id.Step < n.kept.Step {
		e.Kind = api.KindError
		e.Message = fmt.Sprintf("the checkpoint of step %d is damaged or lost: going back to the one of step %d", n.kept.Step, id.Step)
	}
	n.monitor.Saved(e)
	n.kept = id
	n.keep(state)
}

// switchTo ends the running generation and begins the state's plan.
func (n *Node) switchTo(ctx context.Context, state consensus.State) {
	n.stopGeneration(errReplaced)
	n.completed = false
	n.monitor.Begin(state)
	if !state.Plan.Places(n.self) {
		n.enter(Waiting)
		return
	}
	n.enter(Loading)
	n.generation = n.startGeneration(ctx, state.Plan)
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

// ended takes in the end of the running generation. What no other plan can cure is
// returned: this node gives up, the others go on without it.
func (n *Node) ended(err error) error {
	plan, state := n.generation.plan, n.raft.State()
	n.generation = nil
	switch {
	case err == nil:
		n.completed = true
		n.enter(Waiting) // for the next plan, or the end
		return nil
	case errors.Is(err, checkpoint.ErrDiskFull), errors.Is(err, kernels.ErrOutOfMemory),
		errors.Is(err, kernels.ErrUnsupported), errors.Is(err, pipeline.ErrBadConfig):
		return err
	case errors.Is(err, checkpointer.ErrNoChunks) && !othersActive(state, n.self) && len(state.Older) == 0:
		return n.wayBack(state, err) // nobody else is there to wait for, and nothing to go back to
	}
	n.monitor.SetStalled(plan.Generation, err)
	if lost := (lostPeerError{}); !errors.As(err, &lost) {
		n.checkDevices(n.base)
	}
	n.log.Info("gave the generation up, waiting for a new plan", "generation", plan.Generation, "cause", err)
	n.enter(Waiting)
	return nil
}

// wayBack says what to do about a checkpoint that this node lacks some of. Where no other node
// has a copy there is only a backup, or a new run.
func (n *Node) wayBack(state consensus.State, err error) error {
	if !leader.OnlyHolder(state, n.self) {
		return err
	}
	n.log.Error("no way back to the checkpoint", "cause", err)
	return marked{fmt.Errorf("node: the only checkpoint, of step %d, is damaged and no other node holds a copy: bring %s back from a backup and use --resume, or train again with another --dir, from step 0 with the settings of before or from a model of yours with --init",
		state.Checkpoint.Step, storeDir(n.dir)), err}
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
	previous := n.keeping
	done := make(chan struct{})
	n.keeping = done
	n.group.Go(func() error {
		defer close(done)
		if previous != nil {
			<-previous
		}
		if err := n.keeper.Commit(state.Run.Run, state.Checkpoint, state.Run.Train.KeepCheckpoints); err != nil {
			n.log.Warn("checkpoint", "cause", err)
		}
		return nil
	})
}

// rejoin enters the roster again when this node was counted as gone while it lives.
func (n *Node) rejoin(ctx context.Context, state consensus.State) {
	m, ok := state.Member(n.self)
	if !ok || m.Boot != n.boot || m.State != consensus.Gone || n.exit.leaving {
		return
	}
	n.tasks.rejoin.start(&n.group, func() {
		n.log.Warn("the others counted this node as gone, joining again", "reason", m.Reason)
		if err := n.enroll(ctx); err != nil && ctx.Err() == nil {
			n.log.Warn("join again", "cause", err)
		}
	})
}
