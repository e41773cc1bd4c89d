package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/node/leader"

	"pnode/kernels"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/gossip"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// proposeTimeout bounds one proposal of the run loop, which makes it again.
	proposeTimeout = 10 * time.Second
	// leaveTimeout bounds how long a leaving node waits for its state to be handed over,
	// and a stopping one for the last checkpoint.
	leaveTimeout = 2 * time.Minute
	// lingerSilence is how long another node may be silent before a finished one does not
	// wait for it any more.
	lingerSilence = 3 * time.Second
	// lonelyTimeout is how long they wait while no majority answers.
	lonelyTimeout = 7 * time.Second
	// farewellTimeout bounds giving the vote away: a node that could take it may be silent, for
	// leader.UnreachableAfter until it counts as gone.
	farewellTimeout = 2 * leader.UnreachableAfter
)

// ErrNotHandedOver says that a node left before its state was safe with others, or the
// run stopped before it was saved.
var ErrNotHandedOver = errors.New("node: left without handing over")

// startLeaving begins the way out.
func (n *Node) startLeaving() {
	n.exit.leaving = true
	n.enter(Draining)
	if n.raft.State().Plan.Generation == 0 { // nothing has begun that could be saved
		n.exit.over, n.exit.left = true, othersActive(n.raft.State(), n.self)
	}
}

// followExit acts on the way out that the state gives.
func (n *Node) followExit(ctx context.Context, state consensus.State) {
	switch wanted := state.StopWanted || n.exit.leaving; {
	case !wanted:
		n.exit.since = time.Time{}
	case n.exit.since.IsZero():
		n.exit.since = time.Now()
	}
	v := wayOut(exitView{
		State: state, Self: n.self, Leaving: n.exit.leaving, Newest: n.monitor.NewestStep(),
		Running: n.generation != nil, Completed: n.completed,
		Stalled: n.monitor.Stalled() || n.planGivenUp(state, n.exit.since, time.Now()),
	})
	switch {
	case v.Over:
		n.exit.over, n.exit.left = true, v.Left
	case v.Drain:
		n.wish(ctx, consensus.SetMemberState{Peer: n.self, Boot: n.boot, State: consensus.Draining, Reason: "leaving"})
	case v.Stop:
		n.wish(ctx, consensus.WantStop{})
	case v.Finish:
		n.tasks.finish.start(&n.group, func() { n.finish(ctx, state) })
	}
}

// planGivenUp reports, on a node without a part in the plan, whether nobody goes on with it: one
// of its nodes says so, or has been silent since a time.
func (n *Node) planGivenUp(state consensus.State, since, now time.Time) bool {
	peers := state.Plan.Peers()
	if slices.Contains(peers, n.self) {
		return false
	}
	silent := func(p plan.PeerID) bool { return n.beats.Silent(p, since, now) > leader.DeadAfter }
	return n.beats.Stalled(peers, state.Plan.Generation, now).For > 0 || slices.ContainsFunc(peers, silent)
}

// wish proposes an entry in the background. Refused or lost, it is proposed again when the
// loop next looks.
func (n *Node) wish(ctx context.Context, e consensus.Entry) {
	n.tasks.wish.start(&n.group, func() {
		ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
		defer cancel()
		if err := n.raft.Propose(ctx, e); err != nil && ctx.Err() == nil {
			n.log.Info("propose", "entry", fmt.Sprintf("%T", e), "cause", err)
		}
	})
}

// checkDeadline ends a leave or stop that takes too long, or that no majority is there to
// agree to; what is lost then is the time back to the last checkpoint, never the run.
func (n *Node) checkDeadline(now time.Time) error {
	if n.exit.since.IsZero() {
		return nil
	}
	step := n.raft.State().Checkpoint.Step
	switch passed, lost := now.Sub(n.exit.since), n.raft.Quorum().LostSince; {
	case passed > leaveTimeout:
		return fmt.Errorf("%w within %v: the run can go on from the checkpoint of step %d", ErrNotHandedOver, leaveTimeout, step)
	case passed > lonelyTimeout && !lost.IsZero() && now.Sub(lost) > lonelyTimeout:
		return fmt.Errorf("%w: too few of the run's voters answer; the checkpoint of step %d is kept, and the run goes on from it when they and this node are started again", ErrNotHandedOver, step)
	}
	return nil
}

// finish has the finished model write a sample and ends the run for everyone. It is begun again until
// the log says here that the run is finished, which may be a while after it says so elsewhere.
func (n *Node) finish(ctx context.Context, state consensus.State) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	n.last.sampleOnce(func() (string, error) { return n.sample(ctx, state) }, func(err error) {
		if !errors.Is(err, context.Canceled) { // this node is being closed
			n.log.Warn("the finished model has written no sample", "cause", err)
		}
	})
	if n.last.accepted {
		return
	}
	err := n.raft.Propose(ctx, consensus.Finish{Sample: n.last.sample})
	if n.last.accepted = err == nil; err != nil && ctx.Err() == nil && !errors.Is(err, consensus.ErrClosed) {
		n.log.Warn("the run is not marked as finished yet", "cause", err)
	}
}

// sample has the model of the newest checkpoint write some text. A model that was trained on a
// device which computes nothing has none to write.
func (n *Node) sample(ctx context.Context, state consensus.State) (string, error) {
	run := *state.Run
	if run.Train.SampleTokens == 0 || n.hardware.Idle() {
		return "", nil
	}
	return n.chunks().Sample(ctx, run, n.hardware.First(), func(layer int, dst []float32) error {
		bytes := make([]byte, pipeline.LayerStateBytes(run.Model, layer))
		if err := n.keeper.Read(ctx, state.Checkpoint.Layers[layer], bytes); err != nil {
			return err
		}
		copy(kernels.Float32Bytes(dst), pipeline.LayerParams(run.Model, layer, bytes))
		return nil
	}, consensus.MaxSampleBytes)
}

// lastWords are what the task that finishes the run, which owns them, has done of it.
type lastWords struct {
	sampled  bool
	sample   string
	accepted bool // the log has taken the end of the run
}

// sampleOnce makes the sample the first time, and has failed told why there is none.
func (l *lastWords) sampleOnce(write func() (string, error), failed func(error)) {
	if l.sampled {
		return
	}
	var err error
	if l.sample, err = write(); err != nil {
		failed(err)
	}
	l.sampled = true
}

// windUp ends this node's part: it tells the others, stays until they have what they
// need of it, and gives its vote away where the run goes on.
func (n *Node) windUp(ctx context.Context) error {
	n.stopGeneration(errReplaced)
	if n.keeping != nil {
		<-n.keeping
	}
	state := n.raft.State()
	if !n.exit.left {
		n.monitor.CatchUp(ctx, state) // while the others still wait for this node
	}
	n.machine.to(Stopped)
	if n.exit.left {
		return n.farewell(ctx, state)
	}
	if state.Finished {
		n.seat.Finished = state.Checkpoint.Step
	}
	if state.Sample != "" {
		n.monitor.Publish(api.Event{Kind: api.KindSample, Generation: state.Plan.Generation, Step: state.Checkpoint.Step, Message: state.Sample})
	}
	n.monitor.Done(state)
	n.linger(ctx, state)
	return nil
}

// farewell gives the vote away. It is told as a success only then: a run whose majority
// depends on this node does not go on without it.
func (n *Node) farewell(ctx context.Context, state consensus.State) error {
	ctx, cancel := context.WithTimeout(ctx, farewellTimeout)
	defer cancel()
	if err := n.raft.Leave(ctx); err != nil {
		return fmt.Errorf("%w of this node's vote: the others may have to wait until it is started again: %w", ErrNotHandedOver, err)
	}
	n.monitor.Publish(api.Event{
		Kind: api.KindDone, Generation: state.Plan.Generation, Step: n.monitor.NewestStep(),
		Message: "left the run, which goes on without this node",
	})
	return nil
}

// linger keeps this node up until every other member has stopped or is silent: they may
// still need its vote and its chunks.
func (n *Node) linger(ctx context.Context, state consensus.State) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	begin := time.Now()
	tick := time.NewTicker(gossip.Every / 4)
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
		b, _ := n.beats.Last(m.Peer)
		if b.Phase != Stopped.String() && n.beats.Silent(m.Peer, begin, now) < lingerSilence {
			return true
		}
	}
	return false
}

// Methods of api.Node that package monitor does not have.

// Leave begins this node's way out of the run.
func (n *Node) Leave(context.Context) error {
	n.requestLeave()
	return nil
}

// Stop asks all nodes to save and stop.
func (n *Node) Stop(ctx context.Context) error { return n.raft.Propose(ctx, consensus.WantStop{}) }

// Checkpoints lists what this node keeps.
func (n *Node) Checkpoints() (api.CheckpointList, error) { return checkpointer.List(n.store) }
