package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"pnode/node/api"
	"pnode/node/checkpointer"
	"pnode/node/config"
	"pnode/node/generation"
	"pnode/node/gossip"
	"pnode/node/leader"
	"pnode/node/monitor"
	"pnode/node/notice"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// leaveTimeout bounds for how long nothing of a leaving node's state is handed over, and how long a
	// stopping one waits for the last checkpoint.
	leaveTimeout = 2 * time.Minute
	// lonelyTimeout bounds both while no majority answers, neither as voters nor by heartbeats.
	lonelyTimeout = 7 * time.Second
	// lingerSilence is the silence after which a finished node waits for another no longer.
	lingerSilence = 3 * time.Second
	// quickStop is how long a stop may take before people are told what it waits for.
	quickStop = time.Second
)

// ErrNotHandedOver says that a node left before its state was safe with others, or the
// run stopped before it was saved.
var ErrNotHandedOver = errors.New("node: left without handing over")

// ErrDiverged says that the run stopped since its results are not finite, whoever computes them.
var ErrDiverged = errors.New("node: the run has diverged")

// maxWhyBytes bounds why a node leaves, in the log.
const maxWhyBytes = 128

// startLeaving begins the way out, or takes in that there is less time for it.
func (l *loop) startLeaving(why notice.Notice, now time.Time) {
	state := l.raft.State()
	l.exit.ask(why, now)
	if l.exit.left {
		return
	}
	if !l.exit.leaving {
		l.exit.leaving, l.exit.moved = true, now
		l.enter(Draining)
		l.handover.begin()
	}
	if state.Plan.Generation == 0 { // nothing has begun that could be saved
		l.exit.left = othersActive(state, l.self)
		l.exit.over = !l.exit.left
		return
	}
	if v := l.drain(now); othersActive(state, l.self) && v.tooLate(l.exit.parting) {
		l.giveUp(state, fmt.Sprintf("%s cannot go to others at %s/s in the time that is left", megabytes(v.Bytes-v.Done), megabytes(int64(v.BytesPerS))))
		return
	}
	l.showDrain(now)
}

// drain returns how far the way out has come.
func (l *loop) drain(now time.Time) drainView {
	state, line := l.raft.State(), int64(0)
	for _, r := range l.meter.Rates() {
		line = max(line, r.BytesPerS)
	}
	for _, r := range l.hardware.Profile().Links {
		line = max(line, r.BytesPerS)
	}
	v := l.handover.view(state, l.self, float64(line), now)
	v.Why, v.Deadline, v.Left = l.exit.notice.Why, !l.exit.notice.At.IsZero(), l.exit.notice.At.Sub(now)
	quorum, up := l.raft.Quorum(), func(p plan.PeerID) bool {
		ago, heard := l.heartbeats.Ago(p, now)
		return heard && ago <= leader.DeadAfter+l.heartbeats.Slack(p)
	}
	v.Steps, v.Saving, v.Votes = l.generation != nil && !l.loading, l.completed, needsVote(quorum.Voters, l.self, up)
	v.Paused = !quorum.LostSince.IsZero() && now.Sub(quorum.LostSince) > leaderPatience && noMajority(quorum.Voters, l.self, up)
	if v.Done > l.exit.done {
		l.exit.done, l.exit.moved = v.Done, now
	}
	return v
}

// needsVote reports whether the other voters that are up are no majority.
func needsVote(voters []plan.PeerID, self plan.PeerID, up func(plan.PeerID) bool) bool {
	others := 0
	for _, p := range voters {
		if p != self && up(p) {
			others++
		}
	}
	return slices.Contains(voters, self) && others <= len(voters)/2
}

// showDrain tells people how far the way out has come.
func (l *loop) showDrain(now time.Time) {
	state := l.raft.State()
	if !l.exit.leaving || l.exit.over || l.exit.lost != nil || state.Finished {
		return
	}
	var text string
	settled, votes := false, false
	switch {
	case othersActive(state, l.self):
		v := l.drain(now)
		text, settled, votes = v.text(), v.settled(), v.Votes
	case l.exit.since.IsZero() || now.Sub(l.exit.since) < quickStop:
		return
	default:
		b, _ := l.heartbeats.Last(l.self)
		l.exit.step = cmp.Or(l.exit.step, time.Duration(b.StepNanos)) // told again it would differ each time
		text = stopText(l.exit.notice.Why, l.monitor.NewestStep(), l.generation != nil && !l.loading, l.exit.step)
	}
	if text != l.exit.shown {
		l.exit.shown = text
		l.monitor.Publish(api.Event{Kind: api.KindDrain, Generation: state.Plan.Generation, Step: keptByOthers(state, l.self), Message: text, Settled: settled, Votes: votes})
	}
}

// stopText tells people what a node waits for that stops the run: the step under way, of which the newest took so long, and
// its checkpoint.
func stopText(why string, newest plan.Step, running bool, took time.Duration) string {
	if !running {
		return fmt.Sprintf("stopping (%s): step %d is being saved", why, newest)
	}
	long := ""
	if took > 0 {
		long = fmt.Sprintf(" (one takes %s)", plan.Duration(took))
	}
	return fmt.Sprintf("stopping (%s): the newest step%s ends and is saved; after %s without that the run goes on from the checkpoint before", why, long, plan.Duration(leaveTimeout))
}

// giveUp ends the way out though not all is handed over: the others go on without it.
func (l *loop) giveUp(state consensus.State, why string) {
	l.exit.left = true
	l.exit.lost = fmt.Errorf("%w (%s): %s; nothing committed is lost: the others go on from the newest state that they have, the checkpoint of step %d at the oldest",
		ErrNotHandedOver, l.exit.notice.Why, why, keptByOthers(state, l.self))
}

// followExit acts on the way out that the state gives.
func (l *loop) followExit(ctx context.Context, state consensus.State) {
	switch wanted := state.StopWanted || l.exit.leaving; {
	case !wanted:
		l.exit.since = time.Time{}
	case l.exit.since.IsZero():
		l.exit.since = time.Now()
	}
	view := exitView{
		State: state, Self: l.self, Leaving: l.exit.leaving, Newest: l.monitor.NewestStep(),
		Running: l.generation != nil, Completed: l.completed,
		Stalled: l.monitor.Stalled() || planGivenUp(l.heartbeats, state, l.self, l.exit.since, time.Now()), Patience: l.raft.Patience(),
	}
	view.Salvaging = l.exit.saves(l.heartbeats, view, time.Now())
	v := wayOut(view)
	l.exit.left = l.exit.left || v.Left
	l.followFarewell(ctx, state)
	switch {
	case v.Over && !v.Left:
		l.exit.over = true
	case v.Drain:
		e := consensus.SetMemberState{Peer: l.self, ProcessEpoch: l.epoch, State: consensus.Draining, Reason: plan.Clip(l.exit.notice.Why, maxWhyBytes)}
		if at := l.exit.notice.At; !at.IsZero() {
			e.GraceS = uint32(min(max(1, time.Until(at).Seconds()), consensus.MaxGraceS))
		}
		l.wish(ctx, e)
	case v.Stop:
		l.wish(ctx, consensus.WantStop{})
	case v.Finish:
		l.tasks.finish.start(&l.group, func() { l.finish(ctx, state) })
	}
}

// planGivenUp reports whether the other nodes of the plan save its newest steps no more: one of them says that
// it gave up, or has been silent since leaving or stopping was wanted, longer than a link may be down where this
// node has a part in these steps. Whoever is done waits for them no longer then.
func planGivenUp(heard *gossip.Tracker, state consensus.State, self plan.PeerID, since, now time.Time) bool {
	limit := leader.DeadAfter
	if state.Plan.Places(self) {
		limit = leader.UnreachableAfter
	}
	others := slices.DeleteFunc(state.Plan.Peers(), func(p plan.PeerID) bool { return p == self })
	silent := func(p plan.PeerID) bool { return heard.Silent(p, since, now) > limit }
	return heard.Stalled(others, state.Plan.Generation, now).For > 0 || slices.ContainsFunc(others, silent)
}

// saves reports whether what is left of a generation is being saved, or may yet be where the run stops.
func (e *exit) saves(heard *gossip.Tracker, v exitView, now time.Time) bool {
	s := v.State
	if e.salvage != s.Salvage {
		e.salvage, e.asked = s.Salvage, now
	}
	late := s.Salvage != nil && now.Sub(e.asked) > leader.SalvagePatience(heard, s, v.Patience)
	if !late && salvaging(heard, s, e.since, now) {
		e.unsaved = time.Time{}
		return true
	}
	if !s.StopWanted || v.Running || !v.Stalled || s.Checkpoint.Step >= v.Newest || !leader.MaySave(heard, s, late, now) {
		return false
	}
	if e.unsaved.IsZero() {
		e.unsaved = now
	}
	return now.Sub(e.unsaved) <= max(salvageTimeout, v.Patience)
}

// salvaging reports whether all members that are yet to save what is left of a generation, as the log has asked them to, are there to do so.
func salvaging(heard *gossip.Tracker, state consensus.State, since, now time.Time) bool {
	parts := leader.Unsaved(heard, state)
	return len(parts) > 0 && !slices.ContainsFunc(parts, func(part consensus.SalvagePart) bool {
		m, ok := state.Member(part.By)
		return !ok || m.State == consensus.Gone || heard.Silent(part.By, since, now) > leader.DeadAfter
	})
}

// wish proposes an entry in the background. Refused or lost, it is proposed again when the
// loop next looks.
func (l *loop) wish(ctx context.Context, e consensus.Entry) {
	l.tasks.wish.start(&l.group, func() {
		ctx, cancel := context.WithTimeout(ctx, l.raft.Patience())
		defer cancel()
		if err := l.raft.Propose(ctx, e); err != nil && ctx.Err() == nil {
			l.log.Info("propose", "entry", fmt.Sprintf("%T", e), "cause", err)
		}
	})
}

// checkDeadline ends a leave or stop that takes too long, or that no majority is there to
// agree to; what is lost then is the time back to the last checkpoint, never the run.
func (l *loop) checkDeadline(now time.Time) error {
	if l.exit.since.IsZero() || l.exit.over || l.exit.left {
		return nil
	}
	state := l.raft.State()
	step, since := state.Checkpoint.Step, l.exit.since
	if l.exit.moved.After(since) {
		since = l.exit.moved
	}
	switch quorum := l.raft.Quorum(); {
	case l.exit.leaving && l.exit.overdue(now) && continues(state, l.self): // else nobody would go on without it
		l.giveUp(state, l.drain(now).late())
		return nil
	case now.Sub(since) > leaveTimeout:
		return fmt.Errorf("%w within %s: the run can go on from the checkpoint of step %d", ErrNotHandedOver, plan.Duration(leaveTimeout), step)
	case !quorum.LostSince.IsZero() && now.Sub(quorum.LostSince) > lonelyTimeout && fewVotersHeard(quorum.Voters, l.self, l.heartbeats, l.exit.since, now):
		return fmt.Errorf("%w: too few of the run's voters answer; the checkpoint of step %d is kept, and the run goes on from it when they and this node are started again", ErrNotHandedOver, step)
	}
	return nil
}

// fewVotersHeard reports whether the voters that were heard of within lonelyTimeout are no majority, with this node
// if it is one, at time now of a leave or stop that began at since. Where they are, a leader may be missing for
// longer all the same: on busy machines with slow disks an election takes its time.
func fewVotersHeard(voters []plan.PeerID, self plan.PeerID, heard *gossip.Tracker, since, now time.Time) bool {
	return now.Sub(since) > lonelyTimeout && noMajority(voters, self, func(p plan.PeerID) bool { return heard.Silent(p, since, now) <= lonelyTimeout })
}

// noMajority reports whether the voters that are up are no majority, with this node if it is one.
func noMajority(voters []plan.PeerID, self plan.PeerID, up func(plan.PeerID) bool) bool {
	n := 0
	for _, p := range voters {
		if p == self || up(p) {
			n++
		}
	}
	return n <= len(voters)/2
}

// windUp ends this node's part: it tells the others, and stays until they have what they
// need of it where the run does not go on without it.
func (l *loop) windUp(ctx context.Context) error {
	l.stopGeneration(generation.ErrReplaced)
	if l.keeping != nil {
		<-l.keeping
	}
	state := l.raft.State()
	if !l.exit.left {
		l.monitor.CatchUp(ctx, state) // while the others still wait for this node
		l.hearsay.CatchUp(ctx)
	}
	if l.exit.left {
		l.machine.to(Stopped)
		if l.exit.lost == nil {
			l.monitor.Publish(api.Event{
				Kind: api.KindDone, Generation: state.Plan.Generation, Step: l.monitor.NewestStep(), Settled: true,
				Message: fmt.Sprintf("left the run, which goes on without this node; come back with `%s`", config.WayBack(l.dir, state.Owner(l.self))),
			})
		}
		sayReady(ctx, l.exit.notice, l.log)
		return l.exit.lost
	}
	if state.StopWanted && !state.Finished {
		(&stopping{loop: l}).settle(ctx)
		state = l.raft.State()
		l.keep(ctx, state, checkpointer.ID{}) // with the holders of now
		<-l.keeping
	}
	var d delivery
	if state.Finished {
		l.membership.Finished, l.membership.Unsettled, l.membership.Extends = state.Checkpoint.Step, true, 0
		var err error
		if d, err = l.serve(ctx, state); err != nil {
			return err
		}
		l.membership.Unsettled = !d.Settled
	}
	l.machine.to(Stopped)
	if state.Sample != "" {
		l.monitor.Publish(api.Event{Kind: api.KindSample, Generation: state.Plan.Generation, Step: state.Checkpoint.Step, Message: state.Sample})
	}
	l.monitor.Done(state)
	if state.Finished && !l.hardware.Idle() && l.membership.KeepWhole != config.KeepOff {
		l.monitor.Publish(api.Event{Kind: api.KindModel, Generation: state.Plan.Generation, Step: state.Checkpoint.Step, Message: l.whereText(state, d)})
	}
	l.linger(ctx, state)
	if text := monitor.DivergenceText(state); text != "" {
		return marked{errors.New("node: " + text), ErrDiverged}
	}
	return nil
}

// linger keeps this node up until every other member has stopped or is silent: they may
// still need its vote and its chunks. It does not wait for those whose machine says that
// they have ended.
func (l *loop) linger(ctx context.Context, state consensus.State) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	l.sendHeartbeat() // at once: the others wait for it
	begin := time.Now()
	others := slices.DeleteFunc(slices.Clone(state.Members), func(m consensus.Member) bool {
		ago, heard := l.heartbeats.Ago(m.Peer, begin)
		return m.Peer == l.self || m.State == consensus.Gone || heard && ago > 2*gossip.Every+l.heartbeats.Slack(m.Peer) && l.swarm.Data().Refuses(ctx, m.Peer)
	})
	waitsFor := func(m consensus.Member) bool {
		b, _ := l.heartbeats.Last(m.Peer)
		return b.Phase != string(Stopped) && l.heartbeats.Silent(m.Peer, begin, time.Now()) < lingerSilence
	}
	tick := time.NewTicker(gossip.Every / 4)
	defer tick.Stop()
	for slices.ContainsFunc(others, waitsFor) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
