package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"pnode/node/leader/blame"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// term is the time from a leader's election on. Each of its parts follows one thing, and says what it sees at a look.
type term struct {
	*Leader
	number   plan.Term
	attempts attempts
	pauses   pauseWatch
	better   betterWatch
	court    court
	salvages salvageWatch
	next     nextPlan
	growth   growth
	steps    stepWatch
	rounds   roundWatch
}

// newTerm begins a leader's term. The plans for losses were looked for before.
func newTerm(l *Leader, number plan.Term, search spawn, losses *ahead) *term {
	l.Log.Info("this node is the leader", "term", number)
	schedule := &scheduleWatch{Leader: l, spawn: search}
	return &term{
		Leader: l, number: number,
		pauses:   pauseWatch{beats: l.Heartbeats},
		better:   betterWatch{Leader: l, search: search, schedule: schedule},
		court:    court{Config: l.Config, deaf: deafWatch{beats: l.Heartbeats}},
		salvages: salvageWatch{beats: l.Heartbeats},
		next:     nextPlan{search: search, ahead: losses, schedule: schedule, now: l.Now, log: l.Log},
		growth:   growth{Leader: l, spawn: search},
		steps:    stepWatch{beats: l.Heartbeats},
		rounds:   roundWatch{beats: l.Heartbeats},
	}
}

// look sees what there is to see, decides, and proposes at most one thing besides what steps have shown.
func (t *term) look(ctx context.Context, state consensus.State, seen *sightings) error {
	m := t.moment(ctx, state, seen)
	next := decide(t.view(m))
	err := errors.Join(unlessStale(t.carryOut(ctx, m, next)), unlessStale(t.grow(ctx, state)))
	if next == (verdict{}) && state.Plan.Generation != 0 && !state.Paused() {
		t.next.foresee(state, t.Self)
	}
	return err
}

// moment looks at the members, and has those asked that are silent, or in a dispute.
func (t *term) moment(ctx context.Context, state consensus.State, seen *sightings) moment {
	m := moment{state: state, now: seen.last, seen: seen, patience: t.Patience()}
	m.stall = t.Heartbeats.Stalled(state.Plan.Peers(), state.Plan.Generation, seen.last)
	for _, member := range state.Members {
		if member.Peer == t.Self || member.State == consensus.Gone {
			continue
		}
		silent, suspicious, _ := seen.missed(member, m.stall)
		if silent > min(DeadAfter, suspicious) {
			t.ask(ctx, member)
		}
		if silent > suspicious {
			m.silent = append(m.silent, member)
		}
	}
	if from, found := contradictions(state); len(found) > 0 && !state.StopWanted && !state.Finished {
		over := false
		m.heard, over = t.hearings.Of(ctx, t.Exhibits, state, from, found, t.wake)
		m.hearing = !over
	}
	return m
}

// view has each part say what it sees.
func (t *term) view(m moment) view {
	state, train := m.state, m.state.Run.Train
	back := func(m consensus.Member) bool { return m.State == consensus.Joining }
	if t.attempts.look(state) {
		t.court.progress()
	}
	v := view{
		Plan: state.Plan, Checkpoint: state.Checkpoint.Step, Newest: t.Heartbeats.Newest(state.Plan, m.now),
		Members: m.members(t.Self, &t.ended), Names: consensus.NamesOf(state), Owners: state.ActiveOwners(),
		MinNodes: train.MinNodes, MinDevices: devicesAsked(train),
		Entering: m.seen.entering(),
		Ending:   state.StopWanted || state.Finished, Finished: state.Finished, Returning: state.StopWanted && !state.Finished && slices.ContainsFunc(state.Members, back),
		Orphaned: orphaned(state), Carried: carriedOf(state), Stall: t.stall(m),
		wish: t.better.look(m), pause: t.pauses.look(m),
	}
	v.Replayers = t.salvages.replayers(state, v.Members, v.Newest)
	v.UnderWay = t.steps.look(state, v.Newest, m.now)
	v.UnderWay.Ready = t.next.foreseen(state, v.Members)
	v.charges = t.court.look(m, v.Carried)
	v.remains = t.salvages.look(m, v.Newest, v.broken())
	v.Absent = t.salvages.absent(m, t.Self, t.AwaitHolders)
	v.meeting = t.rounds.look(m, unableOf(v))
	return v
}

// stall describes how the generation was given up, if it was.
func (t *term) stall(m moment) stall {
	return stall{Stall: m.stall, Patience: t.attempts.patience(), Plans: t.attempts.plans, Alone: OnlyHolder(m.state, t.Self), Fallback: fallback(m.state)}
}

// carryOut turns a verdict into a proposal.
func (t *term) carryOut(ctx context.Context, m moment, v verdict) error {
	ctx, cancel := context.WithTimeout(ctx, t.Patience())
	defer cancel()
	switch {
	case v.Doubt:
		return nil // it is being asked, and its host: it may be the link that is down, which comes back
	case v.Propose != nil:
		t.Log.Info("a round of local steps does not end as planned", "entry", fmt.Sprintf("%+v", v.Propose))
		return t.Consensus.Propose(ctx, v.Propose)
	case v.Gone != "":
		return t.markGone(ctx, m.state, v)
	case v.Rule != blame.Ruling{}:
		return t.court.rule(ctx, m.state, v.Rule)
	case v.Salvage != nil:
		return t.salvage(ctx, *v.Salvage)
	case v.Prepare:
		t.next.prepare(m, v.Why, v.Suspect)
		return nil
	case v.Pause:
		return t.askForPause(ctx, m, v.Why)
	case v.Rollback != 0:
		return t.rollBack(ctx, m.state, v)
	case v.Again:
		return t.planAgain(ctx, m.state, v.Why)
	case v.Plan:
		return t.proposePlan(ctx, m, v.Why)
	}
	t.blocked.Store(v.Blocked)
	return nil
}

// markGone has the log name who goes on in a lost member's place, or else say that it is gone; unless it answers after all.
func (t *term) markGone(ctx context.Context, state consensus.State, v verdict) error {
	if !v.Ended && t.Consensus.Answers(ctx, v.Gone) { // only its gossip does not come through
		t.Log.Debug("no heartbeats of a node that lives", "peer", v.Gone)
		t.Heartbeats.Touch(v.Gone, time.Now())
		return nil
	}
	m, _ := state.Member(v.Gone)
	level, text := departure(state, m, v.Ended)
	t.Log.Log(ctx, level, text, "peer", v.Gone, "why", v.Why)
	if v.By != "" {
		e := consensus.Substitute{Generation: state.Plan.Generation, Lost: v.Gone, ProcessEpoch: m.ProcessEpoch, By: v.By, Replays: v.Replays, Reason: v.Why}
		if v.Replays {
			e.From = state.Checkpoint.Step
		}
		t.Log.Info("another node goes on in its place", "peer", v.By, "replays", v.Replays, "from", e.From)
		err := t.Consensus.Propose(ctx, e)
		if v.Replays && t.Consensus.State().Checkpoint.Step != e.From {
			err = unlessStale(err) // there is a newer checkpoint to begin with
		}
		if !errors.Is(err, consensus.ErrRejected) {
			return err
		}
	}
	return t.Consensus.Propose(ctx, consensus.SetMemberState{Peer: v.Gone, ProcessEpoch: m.ProcessEpoch, State: consensus.Gone, Reason: v.Why})
}

// departure returns how a member's end is logged: it is no news where it was leaving, or all are.
func departure(state consensus.State, m consensus.Member, ended bool) (slog.Level, string) {
	if ended && (m.State == consensus.Draining || state.StopWanted || state.Finished) {
		return slog.LevelInfo, "a node has left"
	}
	return slog.LevelWarn, "a node is gone"
}

// salvage has the log say who saves what is left of the generation.
func (t *term) salvage(ctx context.Context, s consensus.Salvage) error {
	t.salvages.asked++
	t.Log.Info("having the newest step saved from memory", "generation", s.Generation, "step", s.Step)
	return t.Consensus.Propose(ctx, s)
}

// askForPause has the newest step saved once the plan that is to follow is there. The steps go on while the search looks.
func (t *term) askForPause(ctx context.Context, m moment, why string) error {
	if _, ok := t.next.get(m, why); !ok {
		return nil
	}
	t.Log.Info("asking for a checkpoint before a new plan", "why", why)
	return t.Consensus.Propose(ctx, consensus.WantPause{Count: m.state.PauseWanted + 1})
}

// rollBack gives the newest checkpoint up.
func (t *term) rollBack(ctx context.Context, state consensus.State, v verdict) error {
	from := state.Checkpoint.Step
	t.Log.Warn("going back to an older checkpoint", "from", from, "to", v.Rollback, "why", v.Why)
	return t.Consensus.Propose(ctx, consensus.Rollback{From: from, To: v.Rollback, Term: t.number, Reason: v.Why})
}

// planAgain commits the plan of before as the next generation.
func (t *term) planAgain(ctx context.Context, state consensus.State, why string) error {
	again := state.Plan
	again.Generation++
	same := made{lines: []string{"the same plan as before: all of its members are back, and have their state in memory"}}
	return t.commitPlan(ctx, state, consensus.SetPlan{Plan: again, Term: t.number, Epoch: state.Epoch, Reasons: same.reasons(why)})
}

// proposePlan commits the next generation once there is one for this state.
func (t *term) proposePlan(ctx context.Context, m moment, why string) error {
	next, ok := t.next.get(m, why)
	if !ok {
		next, ok = t.next.repair(m)
	}
	if !ok {
		return nil
	}
	t.next.drop()
	if next.err != nil {
		t.blocked.Store(withoutPackage(next.err))
		return nil
	}
	t.blocked.Store("")
	return t.commitPlan(ctx, m.state, consensus.SetPlan{Plan: next.plan, Term: t.number, Epoch: m.state.Epoch, Reasons: next.reasons(why)})
}

// commitPlan has the log take a plan, from the newest checkpoint on.
func (t *term) commitPlan(ctx context.Context, state consensus.State, e consensus.SetPlan) error {
	e.Plan = together(state, e.Plan)
	e.Reasons = slices.Concat(e.Reasons, ownWords(state, e.Plan))
	e.Reasons = e.Reasons[:min(len(e.Reasons), maxReasons)]
	err := t.Consensus.Propose(ctx, e)
	if err == nil {
		t.attempts.plans++
		t.court.replaced(state)
		t.Log.Info("committed a plan", "generation", e.Plan.Generation, "start", e.Plan.Start, "why", e.Reasons[0])
	}
	return err
}

// unlessStale drops the refusal of an entry that is out of date, such as one of a leader whose term has ended: the next look
// sees the newer state.
func unlessStale(err error) error {
	if errors.Is(err, consensus.ErrStale) {
		return nil
	}
	return err
}

// grow writes down what steps have shown of members' claims.
func (t *term) grow(ctx context.Context, state consensus.State) error {
	if state.Substitute != nil || state.Plan.Local != nil { // inner steps are not compared with what was predicted
		return nil
	}
	e, ok := t.growth.look(state, func() planner.Input { return NextInput(without(state, leftOut(state, t.Now()))) })
	if !ok {
		return nil
	}
	return t.growth.propose(ctx, e)
}

// withoutPackage returns an error of the planner as people read it.
func withoutPackage(err error) string { return strings.TrimPrefix(err.Error(), "planner: ") }
