package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/node/checkpointer"
	"pnode/node/monitor"
	"pnode/node/notice"
	"pnode/node/plain"
	"pnode/swarm/consensus"
)

const (
	// enrollTimeout bounds getting into the roster of a run that goes on.
	enrollTimeout = time.Minute
	// firstProbes is how long this node is not counted in because its links are being measured, which goes on afterwards.
	firstProbes = 6 * time.Second
	// takenInTime is how long a node that has the model of a finished run tries to get in all the same.
	takenInTime = 10 * time.Second
)

// bootstrap holds the differences between founding a run, joining it and resuming it.
type bootstrap struct {
	// contact makes the first contact with the run.
	contact func(ctx context.Context) error
	// patience bounds getting into the roster.
	patience time.Duration
	// ready is called when this node is in the roster and knows the run.
	ready func(ctx context.Context, state consensus.State) error
}

// run takes part in the run until it is over, and closes the node. Cancelling ctx during the
// bootstrap ends it; afterwards it asks to leave. A notice that this machine is taken away does the same.
func (n *Node) run(ctx context.Context, b bootstrap) error {
	asked := ctx
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	n.group.Go(func() error {
		notice.Watch(n.base, n.notices, n.log, func(heard notice.Notice) {
			if heard.Hint {
				n.out.Notice(heard.Why + ": nothing is done yet")
				return
			}
			end(&heard)
			n.requestLeave(heard)
		})
		return nil
	})
	l := newLoop(n)
	err := l.bootstrap(ctx, b)
	switch {
	case err != nil && ctx.Err() != nil && !errors.Is(err, ErrFinished):
		n.log.Info("interrupted on the way in", "cause", err)
		err = ErrInterrupted
	case err == nil:
		stop := context.AfterFunc(asked, func() { n.requestLeave(noticeOf(asked)) })
		defer stop()
		err = l.run(n.base)
	}
	return errors.Join(n.names.Error(err), n.Close())
}

// noticeOf returns why a context has ended, as whoever ended it said.
func noticeOf(ctx context.Context) notice.Notice {
	why := &notice.Notice{Why: "asked to stop"}
	errors.As(context.Cause(ctx), &why)
	return *why
}

// bootstrap makes contact, measures this machine, enters the roster, and fetches the text.
func (l *loop) bootstrap(ctx context.Context, b bootstrap) error {
	if err := b.contact(ctx); err != nil {
		return err
	}
	l.enter(Profiling)
	if _, err := l.hardware.Measure(); err != nil {
		return err
	}
	state, err := l.enterRoster(ctx, b.patience)
	if err != nil {
		return err
	}
	l.admitted = true
	if err := l.saveMembership(); err != nil {
		return err
	}
	if err := b.ready(ctx, state); err != nil {
		return err
	}
	state = l.raft.State()
	if l.kept = checkpointer.IDOf(state.Checkpoint); l.kept.Step > 0 {
		l.keep(ctx, state, checkpointer.ID{}) // the process before may have ended before it did
	}
	chunks := l.chunks()
	text, err := chunks.OpenText(ctx, *state.Run)
	if err != nil {
		return err
	}
	l.parts.Data = text
	if err := chunks.OpenInitial(ctx, state.Run.Init, state.Checkpoint.Step > 0); err != nil {
		return err
	}
	if err := saveRun(l.dir, *state.Run); err != nil {
		return err
	}
	if l.probeLinks(ctx) { // so that the plan which follows knows them
		update := consensus.Update{Peer: l.self, ProcessEpoch: l.epoch, Addrs: l.announcer.Addrs(), Profile: l.hardware.Profile()}
		if err := l.raft.Propose(ctx, update); err != nil {
			return fmt.Errorf("node: report the links: %w", err)
		}
	}
	if err := l.raft.Propose(ctx, l.activeEntry()); err != nil {
		return fmt.Errorf("node: become active: %w", err)
	}
	l.custody.tellRoom(state, l.out.Notice)
	l.group.Go(func() error { l.custody.whole.Run(l.base); return nil })
	l.group.Go(func() error { l.sampler.Run(l.base); return nil })
	l.group.Go(func() error { lonely{l.Node}.watch(l.base, l.endWith); return nil })
	l.group.Go(func() error { l.monitor.LearnLosses(l.base); return nil })
	l.group.Go(func() error { chunks.Mirror(l.base, text.ChunkOrder(state.Checkpoint.Step+1), l.log); return nil })
	l.enter(Waiting)
	return nil
}

// probeLinks starts the announcer, and blocks until it has measured the links, at most for firstProbes. It reports whether
// the profile has any that are new.
func (l *loop) probeLinks(ctx context.Context) (fresh bool) {
	before, probed := l.hardware.Profile().Links, make(chan struct{})
	l.group.Go(func() error { l.announcer.Run(l.base, func() { close(probed) }); return nil })
	select {
	case <-probed:
	case <-time.After(firstProbes):
	case <-ctx.Done():
	}
	return !slices.Equal(before, l.hardware.Profile().Links)
}

// enterRoster joins as a member and blocks until the log has come here. The run may have
// ended while this node was away: then those who may say so are enough, where a majority would
// have to take the member in.
func (l *loop) enterRoster(ctx context.Context, patience time.Duration) (consensus.State, error) {
	until := time.Now().Add(patience)
	l.monitor.SetDeadline(monitor.Deadline{At: until})
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	l.group.Go(func() error {
		tell := func(w endWords) { l.out.Notice(w.doubt(l.raft.State().NameOf)) }
		step := awaitFinished(ctx, l.endWords, tell)
		if step == 0 || l.custody.awaits(step) {
			return nil
		}
		state := l.raft.State()
		if l.custody.keeps(state) { // they may wait for the word that the model is here, and then take this node in
			select {
			case <-time.After(takenInTime):
			case <-ctx.Done():
			}
		}
		known, _ := l.monitor.Known() // without a leader the log's state is that of its snapshot
		end(finishedError{step: step, dir: l.dir, owner: known.Owner(l.self), names: namesIn(known, known.Owners)})
		return nil
	})
	l.group.Go(func() error {
		if err := l.awaitRemoved(ctx); err != nil {
			end(err)
		}
		return nil
	})
	l.group.Go(func() error {
		deserted := func(ctx context.Context) bool { // whoever stopped a run may take time to resume it
			known, _ := l.monitor.Known()
			return monitor.StoppedText(known, l.self) == "" && l.peersUnreachable(ctx, l.lastKnown)
		}
		tell := func(since time.Time) {
			d := monitor.Deadline{At: until}
			if sooner := since.Add(unreachableAfter); !since.IsZero() && sooner.Before(until) {
				d = monitor.Deadline{At: sooner, Deserted: true}
			}
			l.monitor.SetDeadline(d)
		}
		if awaitUnreachable(ctx, unreachableAfter, deserted, tell) {
			end(errUnreachablePeers)
		}
		return nil
	})
	err := l.raft.Propose(ctx, l.joinEntry())
	for err == nil {
		changed := l.raft.Changed()
		state := l.raft.State()
		if m, ok := state.Member(l.self); state.Run != nil && ok && m.ProcessEpoch == l.epoch {
			return state, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	var finished finishedError
	switch cause := context.Cause(ctx); {
	case errors.As(cause, &finished):
		l.membership.Finished = finished.step
		return consensus.State{}, errors.Join(cause, l.membership.save(l.dir))
	case errors.Is(cause, errUnreachablePeers):
		return consensus.State{}, l.unreachableError()
	case errors.Is(cause, ErrRefused):
		return consensus.State{}, cause
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, consensus.ErrNoLeader) {
		if known, _ := l.monitor.Known(); monitor.StoppedText(known, l.self) != "" {
			return consensus.State{}, l.stoppedError(known)
		}
		err = fmt.Errorf("%w: %w: a majority of the run's voters must be up; start the other nodes, or try again when they are back. Where they are gone for good: `pnode train --resume --on-lost-majority recover-after=10m --dir %s`", ErrUnreachable, err, plain.Quote(l.dir))
	}
	return consensus.State{}, fmt.Errorf("node: enter the roster: %w", err)
}

func (l *loop) joinEntry() consensus.Entry {
	return consensus.Join{Peer: l.self, ProcessEpoch: l.epoch, Label: l.name, Addrs: l.announcer.Addrs(), Profile: l.hardware.Profile()}
}

func (l *loop) activeEntry() consensus.Entry {
	return consensus.SetMemberState{Peer: l.self, ProcessEpoch: l.epoch, State: consensus.Active}
}
