package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"pnode/node/hardware"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/planner/plan"
)

// generation is one plan being carried out on this node: a session of links and a
// worker for each device here.
type generation struct {
	plan   plan.Plan
	cancel context.CancelCauseFunc
	done   chan error    // one result, after everything has been closed
	loaded chan struct{} // closed when every worker here has its state
}

// errReplaced ends a generation because another plan took its place.
var errReplaced = errors.New("node: another plan took over")

// lostPeerError ends a generation because a neighbour went silent.
type lostPeerError struct{ name string }

func (e lostPeerError) Error() string {
	return fmt.Sprintf("node: lost the link to %s", e.name)
}

// startGeneration begins to carry out a plan. The result on done is nil when all workers
// here finished or stopped on a commit.
func (n *Node) startGeneration(ctx context.Context, plan plan.Plan) *generation {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &generation{plan: plan, cancel: cancel, done: make(chan error, 1), loaded: make(chan struct{})}
	n.group.Go(func() error {
		err := n.runGeneration(ctx, g)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		cancel(nil)
		g.done <- err
		return nil
	})
	return g
}

// stop ends the generation and waits until its workers have returned.
func (g *generation) stop(cause error) error {
	g.cancel(cause)
	return <-g.done
}

// runGeneration runs the workers here until all have finished their steps or one fails. A
// lost link ends the steps; saves under way go on as long as the generation does.
func (n *Node) runGeneration(ctx context.Context, g *generation) error {
	session := n.links.Session(g.plan.Generation, g.plan.Peers())
	defer session.Close()
	defer n.meter.Follow(session.Stats)()
	session.Warm(g.plan.Neighbours(n.self)...) // while the state is being loaded
	workers, err := n.newWorkers(g, session)
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	if err != nil {
		return err
	}
	err = n.runSteps(ctx, workers, session)
	if err != nil {
		g.cancel(err) // the saves too
	}
	for _, w := range workers {
		err = errors.Join(err, w.Saved())
	}
	return err
}

func (n *Node) runSteps(saves context.Context, workers []*pipeline.Worker, session *link.Session) error {
	group, ctx := errgroup.WithContext(saves)
	finished := make(chan struct{})
	var running sync.WaitGroup
	for _, w := range workers {
		running.Add(1)
		group.Go(func() error {
			defer running.Done()
			return w.Run(ctx, saves)
		})
	}
	group.Go(func() error {
		running.Wait()
		close(finished)
		return nil
	})
	group.Go(func() error {
		select {
		case peer := <-session.Lost():
			return lostPeerError{n.raft.State().NameOf(peer)}
		case <-finished:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	err := group.Wait()
	if err == nil {
		return nil
	}
	select { // a worker may notice the broken link before the watch does
	case peer := <-session.Lost():
		return lostPeerError{n.raft.State().NameOf(peer)}
	default:
		return err
	}
}

// newWorkers builds the workers of this node's seats. On an error it gives those that were
// built, so that the caller can close them.
func (n *Node) newWorkers(g *generation, session *link.Session) ([]*pipeline.Worker, error) {
	p, run := g.plan, *n.raft.State().Run
	seats := p.Workers()
	seats = slices.DeleteFunc(seats, func(s plan.WorkerID) bool { return s.Peer != n.self })
	loaded := onceAll(len(seats), func() { close(g.loaded) })
	var workers []*pipeline.Worker
	for _, seat := range seats {
		device, err := n.hardware.Device(seat.Device)
		if err != nil {
			return workers, err
		}
		w, err := pipeline.New(pipeline.Config{
			Worker: seat, Run: run, Plan: p,
			Device: device, Host: n.hardware.Host(), Data: n.data, Exchange: hardware.Exchange(device, session), Keeper: n.keeper.For(p),
			Stop: n.stopWanted, Next: n.leader.NextSchedule(p), OnLoaded: loaded, OnStep: n.monitor.Step, Trace: n.trace, Log: n.log,
		})
		if err != nil {
			return workers, hardware.ExplainMemory(err)
		}
		workers = append(workers, w)
	}
	return workers, nil
}

// onceAll calls f when it has been called n times.
func onceAll(n int, f func()) func() {
	var left atomic.Int32
	left.Store(int32(n))
	return func() {
		if left.Add(-1) == 0 {
			f()
		}
	}
}

// stopWanted tells the coordinator to end the plan with its next commit: the run is to stop,
// or another plan is to follow.
func (n *Node) stopWanted() bool {
	state := n.raft.State()
	return state.StopWanted || state.Paused()
}
