package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pnode/node/checkpointer"

	"pnode/node/gossip"
	"pnode/node/ingest"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// arrivalProbes bounds measuring links before a node is counted in.
	arrivalProbes = 3 * time.Second
	// enrollTimeout bounds getting into the roster.
	enrollTimeout = time.Minute
	// returnTimeout bounds coming back to a run whose other nodes may be started later.
	returnTimeout = 15 * time.Minute
)

// arrival is what differs between beginning a run, entering it and coming back.
type arrival struct {
	// contact makes the first contact with the run; nil is nothing to do.
	contact func(ctx context.Context) error
	// patience bounds getting into the roster.
	patience time.Duration
	// ready is called when this node is in the roster and knows the run.
	ready func(ctx context.Context, state consensus.State) error
}

// errInterrupted ends a stay that was cancelled before it began.
var errInterrupted = errors.New("node: interrupted before this node took part in the run; nothing is lost")

// run is a node's whole stay: it arrives, follows the run until it is over, and closes.
// Cancelling ctx while it arrives ends it, afterwards it asks to leave.
func (n *Node) run(ctx context.Context, a arrival) error {
	err := n.arrive(ctx, a)
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, ErrFinished):
		n.log.Info("interrupted on arrival", "cause", err)
		err = errInterrupted
	case err == nil:
		stop := context.AfterFunc(ctx, n.requestLeave)
		defer stop()
		err = n.loop(n.base, n.leaveNow)
	}
	return errors.Join(err, n.Close())
}

// requestLeave wakes the run loop, once.
func (n *Node) requestLeave() { n.askLeave.Do(func() { close(n.leaveNow) }) }

// arrive makes contact, measures this machine, enters the roster, and fetches the text.
func (n *Node) arrive(ctx context.Context, a arrival) error {
	if a.contact != nil {
		if err := a.contact(ctx); err != nil {
			return err
		}
	}
	n.enter(Profiling)
	if _, err := n.hardware.Measure(); err != nil {
		return err
	}
	state, err := n.enterRoster(ctx, a.patience)
	if err != nil {
		return err
	}
	n.seated = true
	if err := n.saveSeat(); err != nil {
		return err
	}
	if err := a.ready(ctx, state); err != nil {
		return err
	}
	if n.kept = checkpointer.IDOf(state.Checkpoint); n.kept.Step > 0 {
		n.keep(state) // the process before may have ended before it did
	}
	if n.data, err = n.chunks().OpenText(ctx, *state.Run); err != nil {
		return err
	}
	if err := n.chunks().OpenInitial(ctx, state.Run.Init, state.Checkpoint.Step > 0); err != nil {
		return err
	}
	if err := saveRun(n.dir, *state.Run); err != nil {
		return err
	}
	if n.announcer.ProbeLinks(ctx, arrivalProbes) { // so that the plan which follows knows them
		if err := n.raft.Propose(ctx, n.updateEntry()); err != nil {
			return fmt.Errorf("node: tell of the links: %w", err)
		}
	}
	if err := n.raft.Propose(ctx, n.activeEntry()); err != nil {
		return fmt.Errorf("node: become active: %w", err)
	}
	n.group.Go(func() error { n.announcer.Run(n.base); return nil })
	n.group.Go(func() error { n.monitor.LearnLosses(n.base); return nil })
	n.group.Go(func() error { n.chunks().Mirror(n.base, n.data.ChunkOrder(state.Checkpoint.Step+1), n.log); return nil })
	n.enter(Waiting)
	return nil
}

// chunks returns the run's chunks on this node.
func (n *Node) chunks() ingest.Chunks {
	return ingest.Chunks{Store: n.store, Fetch: n.keeper.Fetcher.Await}
}

// enterRoster joins as a member and waits until the log has come here. The run may have
// ended while this node was away: then one of the others is enough to say so, where a
// majority would have to take the member in.
func (n *Node) enterRoster(ctx context.Context, patience time.Duration) (consensus.State, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	n.group.Go(func() error {
		if step := n.awaitFinished(ctx); step > 0 {
			end(finishedAt(step))
		}
		return nil
	})
	n.group.Go(func() error {
		if awaitDeserted(ctx, n.deserted) {
			end(errDeserted)
		}
		return nil
	})
	err := n.raft.Propose(ctx, n.joinEntry())
	for err == nil {
		changed := n.raft.Changed()
		state := n.raft.State()
		if m, ok := state.Member(n.self); state.Run != nil && ok && m.Boot == n.boot {
			return state, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, ErrFinished):
		return consensus.State{}, errors.Join(cause, n.keepFinished())
	case errors.Is(cause, errDeserted):
		return consensus.State{}, n.desertedError()
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, consensus.ErrNoLeader) {
		err = fmt.Errorf("%w: %w: a majority of the run's voters must be up; start the other nodes, or try again when they are back", ErrUnreachable, err)
	}
	return consensus.State{}, fmt.Errorf("node: enter the roster: %w", err)
}

// awaitFinished waits until another node says that the run is finished, and gives the step; 0
// when ctx ends before.
func (n *Node) awaitFinished(ctx context.Context) plan.Step {
	tick := time.NewTicker(gossip.Every / 2)
	defer tick.Stop()
	for {
		if step := n.beats.Finished(); step > 0 {
			return step
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0
		}
	}
}

// keepFinished notes in the folder that there is nothing to come back to.
func (n *Node) keepFinished() error {
	n.seat.Finished = n.beats.Finished()
	return n.seat.save(n.dir)
}

// enroll enters the roster again after having been counted as gone.
func (n *Node) enroll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, enrollTimeout)
	defer cancel()
	if err := n.raft.Propose(ctx, n.joinEntry()); err != nil {
		return err
	}
	return n.raft.Propose(ctx, n.activeEntry())
}

func (n *Node) joinEntry() consensus.Entry {
	return consensus.Join{Peer: n.self, Boot: n.boot, Label: n.name, Addrs: n.announcer.Addrs(), Profile: n.hardware.Profile()}
}

func (n *Node) updateEntry() consensus.Entry {
	return consensus.Update{Peer: n.self, Boot: n.boot, Addrs: n.announcer.Addrs(), Profile: n.hardware.Profile()}
}

func (n *Node) activeEntry() consensus.Entry {
	return consensus.SetMemberState{Peer: n.self, Boot: n.boot, State: consensus.Active}
}
