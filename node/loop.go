package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/checkpoint"
	"pnode/kernels"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/leader"
	"pnode/node/notice"
	"pnode/pipeline"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// loop is the node's one goroutine that acts on the replicated state. It owns the phase, the
// current generation and the way out; the parts that it works with are the Node's.
type loop struct {
	*Node
	machine     machine
	generation  *generation
	remains     *remains        // what the generation before has left; nil while one runs
	followed    plan.Generation // newest generation acted upon
	lineage     string          // of the log that is followed, see consensus.Recovery
	completed   bool            // the workers here finished the generation
	kept        checkpointer.ID // newest checkpoint acted upon
	keeping     chan struct{}   // closed when its manifest is stored
	rosterEpoch uint64          // of the roster at the last save of the membership
	exit        exit
	completion  completion // owned by the task finish
	tasks       struct{ rejoin, wish, finish, check single }
	cutOff      cutOff
}

// single runs one thing at a time in the background.
type single struct{ running atomic.Bool }

// start runs f unless the one before still runs.
func (s *single) start(group *errgroup.Group, f func()) {
	if !s.running.CompareAndSwap(false, true) {
		return
	}
	group.Go(func() error {
		defer s.running.Store(false)
		f()
		return nil
	})
}

func newLoop(n *Node) *loop {
	changed := func(from, to Phase) {
		n.log.Info("phase", "from", from, "to", to)
		n.monitor.SetPhase(string(to))
	}
	return &loop{Node: n, machine: machine{phase: Joining, changed: changed}}
}

// run follows the replicated state. It returns nil when the run is over or this node has left it.
func (l *loop) run(ctx context.Context) error {
	tick := time.NewTicker(time.Second) // for deadlines; everything else is told
	defer tick.Stop()
	defer func() { l.remains.close() }()
	for !l.exit.over {
		changed := l.raft.Changed()
		l.follow(ctx)
		var loaded <-chan struct{}
		var done <-chan error
		if l.generation != nil {
			loaded, done = l.generation.loaded, l.generation.done
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-l.broken:
			return err
		case why := <-l.leaving:
			l.startLeaving(why, time.Now())
		case <-loaded:
			l.monitor.Interruption.Load(l.generation.keptLayers())
			l.generation.loaded = nil
			l.enter(Training)
		case <-changed:
		case <-l.heartbeats.Ends():
		case err := <-done:
			if err := l.ended(err); err != nil {
				return err
			}
		case <-tick.C:
			l.showDrain(time.Now())
		}
		if err := errors.Join(l.checkDeadline(time.Now()), l.checkRemoved(l.raft.State())); err != nil {
			return err
		}
	}
	return l.windUp(ctx)
}

// follow brings this node in line with the replicated state. It is called after every
// event and does nothing where nothing has changed.
func (l *loop) follow(ctx context.Context) {
	state := l.raft.State()
	me, member := state.Member(l.self)
	current := member && me.ProcessEpoch == l.epoch
	l.followLineage(ctx, state)
	// A plan from before this process started is not carried out.
	if state.Plan.Generation > l.followed && current && !state.Reborn(me) {
		l.followed = state.Plan.Generation
		l.switchTo(ctx, state)
	}
	l.monitor.ShowRulings(state)
	l.followCheckpoint(state)
	l.heartbeats.SetCoordinator(state.Plan.Generation, state.Substitute.Coordinator(state.Plan))
	l.followLoss(state)
	l.remains = l.remains.follow(ctx, state)
	if state.Epoch != l.rosterEpoch {
		l.rosterEpoch = state.Epoch
		l.monitor.RosterChanged(state)
		l.watchProcesses(state)
		if err := l.saveMembership(); err != nil {
			l.log.Warn("a restart may not find the others", "cause", err)
		}
	}
	if _, revoked := state.Revocation(l.self); current && me.State == consensus.Gone && !l.exit.leaving && !revoked {
		l.tasks.rejoin.start(&l.group, func() { l.rejoin(ctx, me.Reason) })
	} else if current && !l.exit.leaving && !revoked {
		l.followOthers(ctx, state, time.Now())
	}
	l.followExit(ctx, state)
}

// watchedProcesses bounds the members whose processes this node watches.
const watchedProcesses = 64

// watchProcesses finds out at once when a member's process ends, of the plan's members first.
func (l *loop) watchProcesses(state consensus.State) {
	peers := state.Plan.Peers()
	for _, m := range state.Members {
		if m.State != consensus.Gone && !slices.Contains(peers, m.Peer) {
			peers = append(peers, m.Peer)
		}
	}
	l.swarm.WatchProcesses(peers[:min(len(peers), watchedProcesses)], func(p plan.PeerID) {
		l.links.PeerEnded(p)
		l.leader.Ended(p)
		l.raft.Ended(p)
	})
}

// followCheckpoint acts on a newly committed checkpoint, or on the way back to an older one.
func (l *loop) followCheckpoint(state consensus.State) {
	id := checkpointer.IDOf(state.Checkpoint)
	if id == l.kept {
		return
	}
	e := api.Event{Kind: api.KindCheckpoint, Generation: id.Generation, Step: id.Step}
	given := checkpointer.ID{}
	if id.Step < l.kept.Step {
		given = l.kept
		e.Kind = api.KindError
		why := "is damaged or lost"
		if n := len(state.Blames); n > 0 && state.Blames[n-1].GoesBack() {
			why = "may be spoilt"
		}
		e.Message = fmt.Sprintf("the checkpoint of step %d %s: going back to the one of step %d", l.kept.Step, why, id.Step)
	}
	l.monitor.Saved(e)
	l.kept = id
	if l.generation != nil {
		l.generation.cadence.Committed(id.Step)
	}
	through := id.Step
	if s := state.Substitute; s != nil && s.Replays {
		through = min(through, s.From) // it needs what comes after
	}
	l.replayer.Forget(through)
	l.keep(state, given)
}

// keep commits the state's checkpoint here on a goroutine of its own, after the one before. given is the newest
// before, where the run has gone back from it.
func (l *loop) keep(state consensus.State, given checkpointer.ID) {
	previous, done := l.keeping, make(chan struct{})
	l.keeping = done
	l.group.Go(func() error {
		defer close(done)
		if previous != nil {
			<-previous
		}
		err := l.checkpointer.Commit(state)
		if given.Step != 0 {
			err = errors.Join(err, l.checkpointer.GiveUp(state.Checkpoint.Step, given.Generation))
		}
		if err != nil {
			l.log.Warn("checkpoint", "cause", err)
		}
		return nil
	})
}

// switchTo ends the running generation and begins the state's plan.
func (l *loop) switchTo(ctx context.Context, state consensus.State) {
	l.stopGeneration(errReplaced)
	held := l.remains.handOver(state.Plan)
	l.remains, l.completed = nil, false
	l.monitor.Begin(state)
	l.ledger.Plan(state.Plan, state.Reasons)
	if !state.Plan.Places(l.self) {
		for _, w := range held {
			w.Close()
		}
		l.enter(Waiting)
		return
	}
	l.enter(Loading)
	l.generation = l.startGeneration(ctx, state, held)
}

// stopGeneration ends the running generation, if there is one, and waits for it.
func (l *loop) stopGeneration(cause error) {
	if l.generation == nil {
		return
	}
	err := l.generation.stop(cause)
	if err != nil && !errors.Is(err, cause) {
		l.log.Info("generation ended", "generation", l.generation.plan.Generation, "cause", err)
	}
	l.monitor.Interruption.End(l.generation.state, err == nil, time.Now())
	l.remains, l.generation = newRemains(l.generation, err), nil
}

// followLoss ends the running generation when it cannot go on: the roster has lost a member of its plan, another member has given it
// up for want of a link, or the log wants what it has left saved. Links may notice later. Where another member goes on in a lost one's
// place the generation does, too.
func (l *loop) followLoss(state consensus.State) {
	if l.generation == nil || l.generation.plan.Generation != state.Plan.Generation {
		return
	}
	others := slices.DeleteFunc(state.Plan.Peers(), func(p plan.PeerID) bool { return p == l.self || state.Substitute.Carrier(p) != p })
	if s := state.Substitute; s != nil && s.Lost != l.self && !l.generation.replaced {
		l.generation.replaced = true
		l.generation.substitutes <- *s
	}
	for _, peer := range state.Plan.Peers() {
		if state.Substitute.Carrier(peer) != peer && peer != l.self { // who is replaced itself has lost its part
			continue
		}
		if m, _ := state.Member(peer); m.State == consensus.Gone || m.State != "" && state.Reborn(m) {
			l.generation.end(l.generation.without(peer, "it is not there any more"))
			return
		}
	}
	for _, a := range l.heartbeats.Stalled(others, state.Plan.Generation, time.Now()).Accusations {
		switch s := l.generation.session.Load(); {
		case a.Kind != plan.LostLink:
		case s != nil && s.Silence(a.Accused) > missedToo:
			l.generation.end(l.generation.without(a.Accused, "lost the link to it"))
			return
		default:
			l.generation.end(errGivenUp)
			return
		}
	}
	if s := state.Salvage; s != nil && s.Generation == state.Plan.Generation {
		l.generation.end(errGivenUp)
	}
}

// ended takes in the end of the running generation. It returns what no other plan can cure: this
// node gives up, the others go on without it.
func (l *loop) ended(err error) error {
	generation, state := l.generation.plan.Generation, l.raft.State()
	l.monitor.Interruption.End(state, err == nil, time.Now())
	l.remains, l.generation = newRemains(l.generation, err), nil
	switch {
	case err == nil:
		l.completed = true
		l.remains.tell()
		l.enter(Waiting) // for the next plan, or the end
		return nil
	case errors.Is(err, checkpoint.ErrDiskFull), errors.Is(err, kernels.ErrOutOfMemory),
		errors.Is(err, kernels.ErrUnsupported), errors.Is(err, pipeline.ErrBadConfig):
		return err
	case errors.Is(err, checkpointer.ErrNoChunks) && !othersActive(state, l.self) && len(state.Older) == 0:
		// Nobody else is there to wait for, and nothing to go back to.
		if !leader.OnlyHolder(state, l.self) {
			return err
		}
		l.log.Error("no way back to the checkpoint", "cause", err)
		return marked{fmt.Errorf("node: the only checkpoint, of step %d, is damaged and no other node holds a copy: bring %s back from a backup and use --resume, or train again with another --dir, from step 0 with the settings of before or from a model of yours with --init",
			state.Checkpoint.Step, storeDir(l.dir)), err}
	}
	l.monitor.SetStalled(generation, err, errors.Is(err, checkpointer.ErrNoChunks))
	if lost := (lostPeerError{}); !errors.As(err, &lost) {
		l.tasks.check.start(&l.group, l.checkDevices)
	}
	l.log.Info("gave the generation up, waiting for a new plan", "generation", generation, "cause", err)
	l.enter(Waiting)
	l.remains.tell()
	return nil
}

// checkDevices looks, after a generation failed, whether a device was the reason. The node goes
// on without lost devices: the plan of the others must not name them again.
func (l *loop) checkDevices() {
	lost, err := l.hardware.DropLost()
	if err != nil {
		l.log.Error("no device is left", "cause", err)
		l.requestLeave(notice.Notice{Why: "no device is left to compute on"})
	} else if lost {
		l.announcer.Announce(l.base)
	}
}

// enter moves the machine on; a draining node stays draining whatever it works on.
func (l *loop) enter(p Phase) {
	if l.machine.phase == Draining && p != Stopped && p != Serving {
		return
	}
	l.machine.to(p)
}

// rejoin enters the roster again after this node was counted as gone while it lives.
func (l *loop) rejoin(ctx context.Context, reason string) {
	l.log.Warn("the others counted this node as gone, joining again", "reason", reason)
	entering, cancel := context.WithTimeout(ctx, enrollTimeout)
	defer cancel()
	err := l.raft.Propose(entering, l.joinEntry())
	if err == nil {
		err = l.raft.Propose(entering, l.activeEntry())
	}
	if err != nil && ctx.Err() == nil {
		l.log.Warn("join again", "cause", err)
	}
}
