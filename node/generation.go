package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"pnode/node/gossip"
	"pnode/node/hardware"
	"pnode/pipeline"
	"pnode/pipeline/link"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// generation carries one plan out on this node: a session of links and a worker for each device
// here.
type generation struct {
	plan      plan.Plan
	self      plan.PeerID
	nameOf    func(plan.PeerID) string // for people
	links     *link.Endpoint
	meter     *gossip.LinkMeter
	newWorker func(id plan.WorkerID, session *link.Session) (*pipeline.Worker, error)

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

// startGeneration begins to carry the state's plan out. The result on done is nil when all
// workers here finished or stopped on a commit.
func (l *loop) startGeneration(ctx context.Context, state consensus.State) *generation {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &generation{
		plan: state.Plan, self: l.self, nameOf: state.NameOf, links: l.links, meter: &l.meter,
		cancel: cancel, done: make(chan error, 1), loaded: make(chan struct{}),
	}
	var unloaded atomic.Int32
	for _, id := range g.plan.Workers() {
		if id.Peer == l.self {
			unloaded.Add(1)
		}
	}
	g.newWorker = func(id plan.WorkerID, session *link.Session) (*pipeline.Worker, error) {
		device, err := l.hardware.Device(id.Device)
		if err != nil {
			return nil, err
		}
		w, err := pipeline.New(pipeline.Config{
			Worker: id, Run: *state.Run, Plan: state.Plan,
			Device: device, Host: l.hardware.Host(), Data: l.data, Exchange: hardware.Exchange(device, session), Keeper: l.checkpointer.For(state.Plan),
			Next: l.leader.NextSchedule(state.Plan), OnStep: l.monitor.Step, Trace: l.trace, Log: l.log,
			OnLoaded: func() {
				if unloaded.Add(-1) == 0 {
					close(g.loaded)
				}
			},
			// The plan ends with its next commit where the run is to stop or another plan follows.
			Stop: func() bool {
				now := l.raft.State()
				return now.StopWanted || now.Paused()
			},
		})
		return w, hardware.ExplainMemory(err)
	}
	l.group.Go(func() error {
		err := g.run(ctx)
		if cause := context.Cause(ctx); err != nil && cause != nil {
			err = cause
		}
		cancel(nil)
		g.done <- err
		return nil
	})
	return g
}

// stop ends the generation and blocks until its workers have returned.
func (g *generation) stop(cause error) error {
	g.cancel(cause)
	return <-g.done
}

// run runs the workers here until all have finished their steps or one fails. A lost link ends
// the steps; saves under way go on as long as the generation does.
func (g *generation) run(ctx context.Context) error {
	session := g.links.Session(g.plan.Generation, g.plan.Peers())
	defer session.Close()
	defer g.meter.Follow(session.Stats)()
	session.Warm(g.plan.Neighbours(g.self)...) // while the state is being loaded
	var workers []*pipeline.Worker
	defer func() {
		for _, w := range workers {
			w.Close()
		}
	}()
	for _, id := range g.plan.Workers() {
		if id.Peer != g.self {
			continue
		}
		w, err := g.newWorker(id, session)
		if err != nil {
			return err
		}
		workers = append(workers, w)
	}
	err := g.runSteps(ctx, workers, session)
	if err != nil {
		g.cancel(err) // the saves too
	}
	for _, w := range workers {
		err = errors.Join(err, w.Saved())
	}
	return err
}

// runSteps returns when all workers have finished their steps, or one of them or a link fails.
func (g *generation) runSteps(saves context.Context, workers []*pipeline.Worker, session *link.Session) error {
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
			return lostPeerError{g.nameOf(peer)}
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
		return lostPeerError{g.nameOf(peer)}
	default:
		return err
	}
}
