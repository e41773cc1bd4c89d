package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/node/api"
	"pnode/planner"
	"pnode/swarm/consensus"
)

const (
	// leaveTimeout bounds how long a leaving node waits for its state to be handed over.
	leaveTimeout = 2 * time.Minute
	// lingerTimeout bounds how long a finished node stays for the others, lingerSilence
	// how long one of them may be silent before it is not waited for.
	lingerTimeout = 15 * time.Second
	lingerSilence = 3 * time.Second
)

// ErrNotHandedOver says that a node left before others had taken over what it held.
var ErrNotHandedOver = errors.New("node: left without handing over")

// exit is the way out of the run loop.
type exit struct {
	leaving  bool      // asked to leave; once begun it is not taken back
	stopping bool      // leaving means to stop the run: nobody else is there
	deadline time.Time // of leaving or stopping; zero while neither is wanted
	over     bool      // the loop ends
	left     bool      // the run goes on without this node
}

// once runs one thing at a time in the background.
type once struct{ running atomic.Bool }

func (o *once) busy() bool { return o.running.Load() }

func (o *once) start(group *errgroup.Group, f func()) {
	if !o.running.CompareAndSwap(false, true) {
		return
	}
	group.Go(func() error {
		defer o.running.Store(false)
		f()
		return nil
	})
}

// startLeaving begins the way out. With other active members this node drains: its
// state is saved, the next plan does without it. Alone, the run is saved and stops.
func (n *Node) startLeaving(ctx context.Context) {
	n.exit.leaving = true
	n.exit.deadline = time.Now().Add(leaveTimeout)
	state := n.raft.State()
	n.exit.stopping = state.StopWanted || !othersActive(state, n.self)
	if state.Plan.Generation == 0 && n.exit.stopping {
		n.exit.over = true // nothing has begun
		return
	}
	n.enter(Draining)
	if !n.exit.stopping {
		drain := consensus.SetMemberState{Peer: n.self, Boot: n.boot, State: consensus.Draining, Reason: "leaving"}
		n.tasks.drain.start(&n.group, func() { n.proposeUntil(ctx, drain) })
	}
}

// proposeUntil repeats a proposal until it is decided or ctx ends.
func (n *Node) proposeUntil(ctx context.Context, e consensus.Entry) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := n.raft.Propose(ctx, e); err != nil && ctx.Err() == nil {
		n.log.Warn("propose", "entry", fmt.Sprintf("%T", e), "cause", err)
	}
}

func othersActive(state consensus.State, self planner.PeerID) bool {
	for _, m := range state.Members {
		if m.Peer != self && m.State == consensus.Active {
			return true
		}
	}
	return false
}

// followExit sees whether the state lets this node go.
func (n *Node) followExit(ctx context.Context, state consensus.State) {
	if state.StopWanted && n.exit.deadline.IsZero() {
		n.exit.deadline = time.Now().Add(leaveTimeout)
	}
	if n.exit.leaving && !othersActive(state, n.self) { // all leave at once: that is a stop
		n.exit.stopping = true
	}
	if n.exit.stopping && !state.StopWanted && !n.tasks.stop.busy() {
		n.tasks.stop.start(&n.group, func() { n.proposeUntil(ctx, consensus.WantStop{}) })
	}
	switch {
	case state.Finished:
		n.exit.over = true
	case state.StopWanted && n.generation == nil && (state.Checkpoint.Step >= n.progress.newest() || n.isStalled()):
		n.exit.over = true
	case n.exit.leaving && !n.exit.stopping && n.handedOver(state):
		n.exit.over, n.exit.left = true, true
	case n.completed && n.generation == nil && state.Checkpoint.Step == state.Run.Train.Steps && coordinates(state.Plan, n.self):
		n.tasks.finish.start(&n.group, func() { n.finish(ctx, state) })
	}
}

// handedOver tells whether this node is marked as leaving and the plan does without it.
func (n *Node) handedOver(state consensus.State) bool {
	m, ok := state.Member(n.self)
	draining := !ok || m.State == consensus.Draining || m.State == consensus.Gone
	return draining && !places(state.Plan, n.self)
}

// coordinates tells whether a peer holds the last stage of replica 0.
func coordinates(plan planner.Plan, peer planner.PeerID) bool {
	if len(plan.Replicas) == 0 {
		return false
	}
	stages := plan.Replicas[0].Stages
	return stages[len(stages)-1].Peer == peer
}

// checkDeadline ends a leave that takes too long; what is lost then is the time back to
// the last checkpoint, never the run.
func (n *Node) checkDeadline(now time.Time) error {
	if n.exit.deadline.IsZero() || now.Before(n.exit.deadline) {
		return nil
	}
	return fmt.Errorf("%w within %v: the run goes on from step %d with the nodes that are left", ErrNotHandedOver, leaveTimeout, n.raft.State().Checkpoint.Step)
}

// finish has the finished model write a sample and ends the run for everyone.
func (n *Node) finish(ctx context.Context, state consensus.State) {
	text, err := n.sample(ctx, state)
	if err != nil {
		n.log.Warn("no sample", "cause", err)
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if err := n.raft.Propose(ctx, consensus.Finish{Sample: text}); err != nil && ctx.Err() == nil {
		n.log.Warn("finish", "cause", err)
	}
}

// windUp ends this node's part: it tells the others, stays until they have what they
// need of it, and gives its vote away where the run goes on.
func (n *Node) windUp(ctx context.Context) error {
	n.stopGeneration(errReplaced)
	if n.keeping != nil {
		<-n.keeping
	}
	n.machine.to(Stopped)
	state := n.raft.State()
	if n.exit.left {
		n.hub.Publish(api.Event{Kind: api.KindDone, Generation: state.Plan.Generation, Step: n.progress.newest(), Message: "left the run, which goes on without this node"})
		ctx, cancel := context.WithTimeout(ctx, lingerTimeout)
		defer cancel()
		return n.raft.Leave(ctx)
	}
	if state.Sample != "" {
		n.hub.Publish(api.Event{Kind: api.KindSample, Generation: state.Plan.Generation, Step: state.Checkpoint.Step, Message: state.Sample})
	}
	n.hub.Publish(n.progress.done(state))
	n.linger(ctx, state)
	return nil
}

// linger keeps this node up until every other member has stopped or is silent: they may
// still need its vote and its chunks.
func (n *Node) linger(ctx context.Context, state consensus.State) {
	ctx, cancel := context.WithTimeout(ctx, lingerTimeout)
	defer cancel()
	begin := time.Now()
	tick := time.NewTicker(beatEvery / 4)
	defer tick.Stop()
	n.beat() // at once: the others wait for it
	for n.waitedFor(state, begin, time.Now()) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (n *Node) waitedFor(state consensus.State, begin, now time.Time) bool {
	for _, m := range state.Members {
		if m.Peer == n.self || m.State == consensus.Gone {
			continue
		}
		b, _ := n.beats.last(m.Peer)
		if b.Phase != Stopped.String() && n.beats.silent(m.Peer, begin, now) < lingerSilence {
			return true
		}
	}
	return false
}
