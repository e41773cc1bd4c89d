package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/checkpoint"
	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/generation"
	"pnode/node/gossip"
	"pnode/node/notice"
	"pnode/node/outersteps"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// loop is the node's one goroutine that acts on the replicated state. It owns the phase, the
// current generation and the way out; the parts that it works with are the Node's.
type loop struct {
	*Node
	machine     machine
	generation  *generation.Generation
	loading     bool                 // a worker of the generation does not have its state, as far as the loop has heard
	remains     *generation.Remains  // what the generation before has left; nil while one runs
	followed    plan.Generation      // newest generation acted upon
	lineage     string               // of the log that is followed, see consensus.Recovery
	completed   bool                 // the workers here finished the generation
	kept        checkpointer.ID      // newest checkpoint acted upon
	newest      consensus.Checkpoint // with its holders, as last seen
	keeping     chan struct{}        // closed when the last change of what is kept is done
	stops       bool                 // the run was to stop when the state was acted upon last
	rosterEpoch uint64               // of the roster at the last save of the membership
	exit        exit
	farewell    farewell
	completion  completion // owned by the task finish
	tasks       struct{ rejoin, wish, finish, check single }
	cutOff      cutOff
	book        outersteps.Book
	gone        uint64 // since when, by the roster's epoch, this node comes back to it as people were told; 0 while it does not
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
	return &loop{Node: n, machine: machine{phase: Joining, changed: changed}, book: outersteps.Book{Ledger: n.ledger}}
}

// run follows the replicated state. It returns nil when the run is over or this node has left it.
func (l *loop) run(ctx context.Context) error {
	tick := time.NewTicker(time.Second) // for deadlines; everything else is told
	defer tick.Stop()
	defer func() {
		l.restorer.Stop()
		l.remains.Close()
	}()
	for !l.exit.over {
		changed := l.raft.Changed()
		l.follow(ctx)
		var loaded <-chan struct{}
		var done <-chan error
		if l.generation != nil {
			done = l.generation.Done()
			if l.loading {
				loaded = l.generation.Loaded()
			}
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-l.broken:
			return err
		case why := <-l.leaving:
			l.startLeaving(why, time.Now())
		case <-loaded:
			l.loading = false
			kept, layers := l.generation.Kept()
			l.monitor.Interruption.Load(kept, layers, time.Now())
			l.enter(Training)
		case err := <-l.farewell.done:
			l.farewell.done = nil
			l.exit.gave(err)
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
	if l.followLineage(ctx, state) {
		l.followExit(ctx, state)
		return
	}
	if current { // the log is here up to its end
		l.followPartings(state)
	}
	// A plan from before this process started is not carried out.
	if state.Plan.Generation > l.followed && current && !state.Reborn(me) {
		l.followed = state.Plan.Generation
		l.switchTo(ctx, state)
	}
	if current {
		l.book.Follow(state)
	}
	l.monitor.Follow(state)
	l.followCheckpoint(ctx, state)
	if state.StopWanted && !l.stops { // what is in memory alone is lost with this process
		l.inOrder(func() error { return l.tellStored(ctx, state) })
	}
	l.stops = state.StopWanted
	l.forget(state)
	l.restorer.Follow(ctx, state, l.generation != nil && l.monitor.NewestStep() > state.Plan.Start)
	l.heartbeats.Follow(state.Partings)
	l.heartbeats.SetPaces(gossip.PacesOf(state))
	l.heartbeats.SetCoordinator(state.Plan.Generation, state.Substitute.Coordinator(state.Plan))
	if l.generation != nil {
		l.generation.Follow(state)
	}
	l.remains = l.remains.Follow(ctx, state)
	if state.Epoch != l.rosterEpoch {
		l.rosterEpoch = state.Epoch
		l.monitor.RosterChanged(state)
		l.watchProcesses(state)
		if err := l.saveMembership(); err != nil {
			l.log.Warn("a restart may not find the others", "cause", err)
		}
	}
	if _, revoked := state.Revocation(l.self); current && me.State == consensus.Gone && !l.exit.leaving && !revoked {
		l.comeBack(ctx, me.Reason)
	} else if current && !l.exit.leaving && !revoked {
		if me.State == consensus.Active && me.Since > l.gone {
			l.gone = 0
		}
		l.followOthers(ctx, state, time.Now())
	}
	l.followExit(ctx, state)
}

// watchedProcesses bounds the members whose processes this node watches; who votes may watch those of a plan of four times as many.
const watchedProcesses = 64

// watchProcesses finds out at once when the process of a member ends that this node works with, and keeps connections with these members.
func (l *loop) watchProcesses(state consensus.State) {
	peers, most := workedWith(state, l.self, l.raft.Quorum().Voters)
	l.swarm.Want(peers)
	l.swarm.WatchProcesses(peers[:min(len(peers), most)], func(p plan.PeerID) {
		l.links.PeerEnded(p)
		l.monitor.Interruption.Miss(p, time.Now())
		l.leader.Ended(p)
		l.raft.Ended(p)
	})
}

// workedWith returns whom a node works with, and how many of these it may watch: the plan's members first, and all others while they are few. Of
// many each watches those of its own plan, beginning with the ones after it, and the voters watch these and each other.
func workedWith(state consensus.State, self plan.PeerID, voters []plan.PeerID) (peers []plan.PeerID, most int) {
	peers, most = state.Plan.Peers(), watchedProcesses
	var others []plan.PeerID
	for _, m := range state.Members {
		if m.State != consensus.Gone && !slices.Contains(peers, m.Peer) {
			others = append(others, m.Peer)
		}
	}
	if len(peers)+len(others) <= watchedProcesses {
		return append(peers, others...), most
	}
	votes, at := slices.Contains(voters, self), slices.Index(peers, self)
	switch {
	case votes:
		most *= 4
	case at < 0:
		return nil, most
	case len(peers) > most:
		peers = slices.Concat(peers[at:], peers[:at])
	}
	if votes {
		peers = slices.Concat(voters, slices.DeleteFunc(peers, func(p plan.PeerID) bool { return slices.Contains(voters, p) }))
	}
	return slices.DeleteFunc(peers, func(p plan.PeerID) bool { return p == self }), most
}

// followCheckpoint acts on a newly committed checkpoint, or on the way back to an older one.
func (l *loop) followCheckpoint(ctx context.Context, state consensus.State) {
	id, before := checkpointer.IDOf(state.Checkpoint), l.newest
	if l.newest = state.Checkpoint; id == l.kept {
		return
	}
	e := api.Event{Kind: api.KindCheckpoint, Generation: id.Generation, Step: id.Step}
	given := checkpointer.ID{}
	if id.Step < l.kept.Step {
		given = l.kept
		e.Kind = api.KindError
		why := "is damaged"
		if n := len(state.Blames); n > 0 && state.Blames[n-1].GoesBack() {
			why = "may be spoilt"
		} else if away, lacks := l.away(state, before); away != "" {
			why = "is not whole here, and " + away + " with its other layers cannot be reached"
		} else if lacks {
			why = "was in part in the memory of this node's process before alone"
		}
		e.Message = fmt.Sprintf("the checkpoint of step %d %s: going back to the one of step %d", l.kept.Step, why, id.Step)
	}
	l.monitor.Saved(e)
	l.kept = id
	if l.generation != nil {
		l.generation.Saved(id.Step)
	}
	l.keep(ctx, state, given)
}

// away names the holders of a checkpoint's layers of which no holder is here, nor the process in whose memory it had them. lacks reports
// whether there are such layers: this node may have been the only holder itself.
func (l *loop) away(state consensus.State, c consensus.Checkpoint) (holders string, lacks bool) {
	here := func(p plan.PeerID) bool {
		m, known := state.Member(p)
		ago, heard := l.heartbeats.Ago(p, time.Now())
		return p == l.self || known && m.State != consensus.Gone && heard && ago < lingerSilence+l.heartbeats.Slack(p)
	}
	var names []string
	for _, layer := range c.Layers {
		if !slices.ContainsFunc(layer.Holding(state), here) {
			lacks = true
			for _, p := range layer.Holders {
				if p != l.self {
					names = append(names, state.NameOf(p))
				}
			}
		}
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " and "), lacks
}

// forget drops the messages that no replay needs any more: those of before the newest checkpoint that is held twice.
func (l *loop) forget(state consensus.State) {
	line := consensus.RecoveryLine(state)
	through := line[len(line)-1].Step
	if s := state.Substitute; s != nil && s.Replays {
		through = min(through, s.From) // it needs what comes after
	}
	l.replayer.Forget(through)
}

// keep commits the state's checkpoint here on a goroutine of its own, after the one before, and then has the log know what that made durable.
// given is the newest before, where the run has gone back from it.
func (l *loop) keep(ctx context.Context, state consensus.State, given checkpointer.ID) {
	l.inOrder(func() error {
		err := l.checkpointer.Commit(state)
		l.group.Go(func() error { return l.tellStored(ctx, state) }) // also where layers of others are missing
		if given.Step != 0 {
			err = errors.Join(err, l.checkpointer.GiveUp(state.Checkpoint.Step, given.Generation))
		}
		if errors.Is(err, checkpoint.ErrNotFound) {
			l.log.Debug("checkpoint", "cause", err)
			err = fmt.Errorf("some layers of step %d that the run has this node hold are not on its disk: others are asked for them, and the next checkpoint is held whole again", state.Checkpoint.Step)
		}
		return err
	})
}

// tellStored has the log know what is durable here of what it has in this node's memory.
func (l *loop) tellStored(ctx context.Context, state consensus.State) error {
	if err := l.checkpointer.Stored(ctx, state); err != nil && ctx.Err() == nil && !errors.Is(err, consensus.ErrClosed) {
		l.log.Warn("the others do not know yet what is stored here of a checkpoint", "step", state.Checkpoint.Step, "cause", err)
	}
	return nil
}

// inOrder changes the checkpoints that are kept here, on a goroutine of its own, after the changes before.
func (l *loop) inOrder(change func() error) {
	previous, done := l.keeping, make(chan struct{})
	l.keeping = done
	l.group.Go(func() error {
		defer close(done)
		if previous != nil {
			<-previous
		}
		if err := change(); err != nil {
			l.log.Warn("a checkpoint is not kept here as it should be", "cause", err)
		}
		return nil
	})
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

// comeBack enters the roster again in the background. People are told once, also where this node learns first that the run went on and
// then why, or has to try again.
func (l *loop) comeBack(ctx context.Context, reason string) {
	if l.gone == 0 {
		me, _ := l.raft.State().Member(l.self)
		l.gone = max(1, me.Since)
		l.log.Warn("the others counted this node as gone, joining again", "reason", reason)
	}
	l.tasks.rejoin.start(&l.group, func() { l.rejoin(ctx) })
}

// rejoin enters the roster again after this node was counted as gone while it lives.
func (l *loop) rejoin(ctx context.Context) {
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
