package leader

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/node/gossip"
	"pnode/pipeline/wire"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

const (
	// decideEvery is the time between two looks at whether something has to change.
	decideEvery = 500 * time.Millisecond
	// proposeTimeout bounds one proposal. A leader that cannot commit loses its term.
	proposeTimeout = 10 * time.Second
)

// Config holds the parts that a Leader works with. All fields but Losses, Stops, Planner and Now are needed.
type Config struct {
	Self       plan.PeerID
	Consensus  Consensus
	Peers      Peers
	Heartbeats *gossip.Tracker
	// Losses returns the losses of the steps after one of a generation, as far as they are known; nil knows none.
	Losses func(after plan.Generation, step plan.Step) []gossip.StepLoss
	// Stops returns how long changes of plan that followed a pause have stopped the steps, in the median; 0 before the first. nil
	// knows none.
	Stops func() time.Duration
	// Planner searches for plans; zero means package planner.
	Planner Planner
	// Now returns the time by which members are left out; nil is this machine's clock.
	Now func() time.Time
	Log *slog.Logger
}

// Consensus is the replicated state and its elected leader; *consensus.Node implements it.
type Consensus interface {
	State() consensus.State
	// Changed returns a channel that is closed at the next change of the state.
	Changed() <-chan struct{}
	Leader() (leader plan.PeerID, term plan.Term, self bool)
	Propose(ctx context.Context, e consensus.Entry) error
	// Answers reports whether a member's process answers over the network.
	Answers(ctx context.Context, p plan.PeerID) bool
}

// Peers answers what the network knows about members.
type Peers interface {
	// Refuses reports whether a member's host says that its process has ended.
	Refuses(ctx context.Context, p plan.PeerID) bool
}

// Planner holds the searches of package planner, each of which may take seconds.
type Planner struct {
	Make         func(context.Context, planner.Input) (plan.Plan, plan.Reasons, error)
	ShouldReplan func(context.Context, planner.Input, plan.Plan) (planner.Decision, error)
	Reselect     func(planner.Input, plan.Plan, planner.Measured) (planner.Reselection, error)
}

// Leader decides for the run while its node is elected, and does nothing else while it is not.
// All methods may be called concurrently.
type Leader struct {
	Config
	searches  errgroup.Group
	questions questions
	found     chan struct{} // receives a value when Run is to look
	blocked   atomic.Value  // a string: why there is no plan
	wish      atomic.Pointer[gossip.ScheduleWish]
	wishes    chan struct{} // receives a value when there is another wish
	ended     ended
	// departures belongs to Run.
	departures departures
}

// New returns a Leader whose duties begin with Run.
func New(c Config) *Leader {
	if c.Planner.Make == nil {
		c.Planner = Planner{planner.Make, planner.ShouldReplan, planner.Reselect}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	l := &Leader{Config: c, found: make(chan struct{}, 1), wishes: make(chan struct{}, 1)}
	l.searches.SetLimit(maxSearches)
	return l
}

// Fill puts into this node's heartbeat why there is no plan, and the schedule that is wanted.
func (l *Leader) Fill(b *gossip.Heartbeat) {
	b.Blocked, _ = l.blocked.Load().(string)
	b.Wish = l.wish.Load()
}

// Wished receives a value when this node's next heartbeat asks for another schedule. It has one reader.
func (l *Leader) Wished() <-chan struct{} { return l.wishes }

// Ended notes that the process of a member has ended, as its operating system says.
func (l *Leader) Ended(p plan.PeerID) {
	if m, ok := l.Consensus.State().Member(p); ok {
		l.ended.note(process{p, m.ProcessEpoch})
		l.wake()
	}
}

// wake has Run look at once.
func (l *Leader) wake() {
	select {
	case l.found <- struct{}{}:
	default: // Run will look anyway
	}
}

// Hear brings news of a member into the roster, if this node leads.
func (l *Leader) Hear(ctx context.Context, p gossip.Profile) {
	update, ok := p.Update(l.Consensus.State())
	if _, _, self := l.Consensus.Leader(); !ok || !self {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	if err := l.Consensus.Propose(ctx, update); err != nil {
		l.Log.Debug("take over a profile", "of", p.Peer, "cause", err)
	}
}

// term holds what a leader remembers from its election on.
type term struct {
	*Leader
	search spawn
	number plan.Term
	// plans counts those committed since the checkpoint of step countedAt.
	plans     int
	countedAt plan.Step
	// begun is when this leader first saw the current plan.
	begun seenPlan
	// broken is when this leader first saw the current generation broken, salvaged when it saw the newest salvage of it;
	// salvages counts those that it proposed.
	broken, salvaged seenSalvage
	salvages         int
	// paused is when this leader first saw the pause that is asked for.
	paused seenPause
	// copies is when a change of the current plan first waited for copies under way.
	copies seenPlan
	// links are the accusations of the generations since then that ended for lost links alone.
	links [][]accusation
	// quit is the only member that gave the generations before the current one up, quits how many in a row.
	quit     plan.PeerID
	quits    int
	restarts restarts
	// suspect is the process whose loss was prepared for last, silent the members that are silent for longer than they ever are.
	suspect process
	silent  []consensus.Member
	// unruled is the generation whose ruling the log does not take.
	unruled plan.Generation
	// better compares the best plan for a roster with the one that runs.
	comparedFor roster
	better      *future[planner.Decision]
	// decided is what came of it, once the cost of the change was weighed.
	decided planner.Decision
	// made is the next plan, for a state and a reason, and those that are left then.
	madeFor  occasion
	madeLeft string
	made     *future[made]
	// ahead holds the plans for the loss of single members.
	ahead *ahead
	// schedule follows the steps of the running plan.
	schedule scheduleWatch
	// losses follows the steps of the run.
	losses lossWatch
	// growth follows what those steps show of members' claims.
	growth growth
}

// roster names what a comparison of plans depends on.
type roster struct {
	epoch      uint64
	generation plan.Generation
	without    string // who is left out, which ends without a change of the state
}

// occasion names what a new plan depends on. A plan for another one is out of date. It does not depend on the
// checkpoint that it starts from.
type occasion struct {
	roster
	why string
}

// made is the result of a search for the next plan.
type made struct {
	plan  plan.Plan
	lines []string // why it is as it is
	err   error
	took  time.Duration
}

// Run carries out the leader's duties on whichever node is elected, until ctx ends. It returns
// after its searches, which end with ctx.
func (l *Leader) Run(ctx context.Context) {
	defer l.questions.work.Wait()
	defer func() { _ = l.searches.Wait() }() // they return no errors
	tick := time.NewTicker(decideEvery)
	defer tick.Stop()
	var t *term
	var seen sightings
	var losses ahead
	search := func(f func(context.Context)) bool { return l.search(ctx, f) }
	changed := l.Consensus.Changed()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		case <-l.Heartbeats.Urgent():
		case <-l.found:
		}
		changed = l.Consensus.Changed() // before the state is read
		now, state := time.Now(), l.Consensus.State()
		seen.look(state.Members, l.Heartbeats.Heard, now)
		l.departures.look(state.Members, now)
		leader, number, self := l.Consensus.Leader()
		if !self {
			t = nil
			l.blocked.Store("")
			l.wish.Store(nil)
			if state.Plan.Places(leader) && !state.Paused() && !state.StopWanted && !state.Finished { // this node may lead next
				losses.look(state, leftOut(state, l.Now()), []plan.PeerID{leader}, search, l.Planner.Make)
			}
			continue
		}
		if t == nil || t.number != number {
			t = &term{Leader: l, number: number, search: search, ahead: &losses, schedule: scheduleWatch{Leader: l, spawn: search}, growth: growth{Leader: l, spawn: search}}
			l.Log.Info("this node is the leader", "term", number)
		}
		if state.Run == nil {
			continue
		}
		next := decide(t.view(ctx, state, &seen))
		if err := errors.Join(t.carryOut(ctx, state, next), t.grow(ctx, state)); err != nil && ctx.Err() == nil {
			l.Log.Warn("leader", "cause", err)
		}
		if next == (verdict{}) && state.Plan.Generation != 0 && !state.Paused() {
			others := slices.DeleteFunc(state.Plan.Peers(), func(p plan.PeerID) bool { return p == l.Self })
			losses.look(state, leftOut(state, l.Now()), others, search, t.schedule.planner(""))
		}
		seen.busy = time.Since(now)
	}
}

// grow writes down what steps have shown of members' claims.
func (t *term) grow(ctx context.Context, state consensus.State) error {
	if state.Substitute != nil {
		return nil
	}
	e, ok := t.growth.look(state, func() planner.Input { return NextInput(without(state, leftOut(state, t.Now()))) })
	if !ok {
		return nil
	}
	return t.growth.propose(ctx, e)
}

// search runs f on a goroutine of its own and wakes Run after it, unless too many run already.
func (l *Leader) search(ctx context.Context, f func(context.Context)) bool {
	return l.searches.TryGo(func() error {
		f(ctx)
		l.wake()
		return nil
	})
}

// view gathers what decide needs, and has members asked that are silent.
func (t *term) view(ctx context.Context, state consensus.State, seen *sightings) view {
	peers, generation := state.Plan.Peers(), state.Plan.Generation
	stalled := t.Heartbeats.Stalled(peers, generation, seen.last)
	t.silent = slices.DeleteFunc(slices.Clone(state.Members), func(m consensus.Member) bool {
		if m.Peer == t.Self || m.State == consensus.Gone {
			return true
		}
		silent, suspicious, _ := seen.missed(m, stalled)
		if silent > DeadAfter {
			t.ask(ctx, m)
		}
		return silent <= suspicious
	})
	v := view{
		Names: map[plan.PeerID]string{}, Plan: state.Plan, Checkpoint: state.Checkpoint.Step,
		MinNodes: state.Run.Train.MinNodes, MinDevices: devicesAsked(state.Run.Train),
		Paused: state.Paused(), Saved: state.Ended(), PausedFor: t.pausedFor(state, seen.last), SavePatience: savePatience(t.Heartbeats.StepTime(state.Plan)),
		Newest: t.Heartbeats.Newest(state.Plan, seen.last),
		Better: t.wanted(state, seen.last), Ending: state.StopWanted || state.Finished,
		Returning: state.StopWanted && !state.Finished && slices.ContainsFunc(state.Members, func(m consensus.Member) bool { return m.State == consensus.Joining }),
	}
	v.Copying, v.CopiesFor = t.waitForCopies(state, v.Better, seen.last)
	for _, p := range peers {
		v.Names[p] = state.NameOf(p)
	}
	for _, m := range state.Members {
		if m.State == consensus.Gone {
			continue
		}
		member := memberView{
			Peer: m.Peer, Ended: t.ended.has(process{m.Peer, m.ProcessEpoch}), Devices: planner.Member{Peer: m.Peer, Profile: m.Profile}.Devices(),
			Active: m.State == consensus.Active, Leaving: m.State == consensus.Draining, Restarted: state.Reborn(m),
		}
		if m.Peer != t.Self {
			member.Silent, member.Suspicious, member.Lost = seen.missed(m, stalled)
		}
		v.Members = append(v.Members, member)
	}
	if state.Checkpoint.Step != t.countedAt {
		if s := state.Salvage; s == nil || s.Step != state.Checkpoint.Step { // else the generation has not come so far by itself
			t.plans, t.links = 0, nil
		}
		t.countedAt = state.Checkpoint.Step
	}
	v.Stall = stall{
		Stall: stalled, Patience: min(stallGrace<<min(t.plans, 5), time.Minute),
		Plans: t.plans, Alone: OnlyHolder(state, t.Self),
	}
	if len(state.Older) > 0 {
		v.Stall.Fallback = state.Older[0].Step
	}
	v.Orphaned = orphaned(state)
	if s := state.Substitute; s != nil {
		v.Carried = carried{s.Lost, s.By}
	}
	v.Trial = t.trial(state, v.Stall.By, v.Carried.accused(append(v.Stall.Accusations, t.deaf(state, seen.last)...)), t.Now())
	if len(v.Stall.Accusations) > 0 {
		v.Trial.Lively = t.lively(state, v.Stall.Stall, seen)
	}
	v.Ruled = t.ruled(state)
	t.viewSalvage(state, &v, seen.last)
	v.Jump, _ = t.losses.look(state, t.Losses)
	v.Ended = endedByRuling(state)
	t.restarts.look(state.Members, seen.last)
	v.Restarts = t.restarts.often(state, seen.last)
	return v
}

// wanted returns why another plan is worth a change that can wait; empty where none is. While a substitute computes two parts steps
// show nothing, and another plan follows anyway.
func (t *term) wanted(state consensus.State, now time.Time) string {
	if state.Substitute != nil {
		return ""
	}
	return cmp.Or(t.compare(state, now), t.schedule.look(state, t.outlook(state, now)))
}

// seenPause is when a leader first saw a pause of a generation.
type seenPause struct {
	generation plan.Generation
	count      uint64
	at         time.Time
}

// waitForCopies reports whether copies under way hold a change up that is wanted for better, and for how long they have. They
// hold up nothing while a member of the plan leaves.
func (t *term) waitForCopies(state consensus.State, better string, now time.Time) (copying bool, since time.Duration) {
	leaves := func(m consensus.Member) bool { return m.State == consensus.Draining && state.Plan.Places(m.Peer) }
	if better == "" || state.Paused() || slices.ContainsFunc(state.Members, leaves) || !t.Heartbeats.Copying(state.Plan) {
		t.copies = seenPlan{}
		return false, 0
	}
	if t.copies.generation != state.Plan.Generation {
		t.copies = seenPlan{state.Plan.Generation, now}
		t.Log.Info("a change of plan waits until the copies under way are made", "why", better)
	}
	return true, now.Sub(t.copies.at)
}

// stateWithout returns the state that the log comes to when it marks a suspected member gone next.
func (t *term) stateWithout(state consensus.State, suspect plan.PeerID) consensus.State {
	m, _ := state.Member(suspect)
	if id := (process{suspect, m.ProcessEpoch}); t.suspect != id {
		t.suspect = id
		t.Log.Info("a node is silent: looking for a plan without it", "peer", suspect)
	}
	next, err := consensus.Apply(state, consensus.SetMemberState{Peer: suspect, ProcessEpoch: m.ProcessEpoch, State: consensus.Gone})
	if err != nil {
		t.Log.Debug("no plan ahead", "cause", err)
	}
	return next
}

// pausedFor returns how long the plan has been paused as this leader saw it, 0 while it is not.
func (t *term) pausedFor(state consensus.State, now time.Time) time.Duration {
	if !state.Paused() {
		return 0
	}
	if p := t.paused; p.generation != state.Plan.Generation || p.count != state.PauseWanted {
		t.paused = seenPause{state.Plan.Generation, state.PauseWanted, now}
	}
	return now.Sub(t.paused.at)
}

// compare returns why a plan with the present members is worth the change. It returns nothing
// if it is not, or while a search looks. There is one search for each roster and generation. What it finds is weighed at each
// look: the longer nobody departs, the longer the next plan will last.
func (t *term) compare(state consensus.State, now time.Time) string {
	if state.Plan.Generation == 0 {
		return ""
	}
	if slices.ContainsFunc(t.silent, func(m consensus.Member) bool { return state.Plan.Places(m.Peer) }) {
		return "" // it is back soon, or gone
	}
	out := append(leftOut(without(state, t.silent), t.Now()), t.silent...)
	if r := (roster{state.Epoch, state.Plan.Generation, namesOf(out)}); t.comparedFor != r {
		t.decided = planner.Decision{}
		in := NextInput(without(state, out))
		in.Links = t.schedule.links
		current := t.withOwnShares(state.Plan)
		t.better = begin(t.search, func(ctx context.Context) planner.Decision {
			d, err := t.Planner.ShouldReplan(ctx, in, current)
			d.Replan = d.Replan && err == nil
			return d
		})
		if t.better != nil {
			t.comparedFor = r
		}
	}
	if d, ok := t.better.get(); ok && d.Replan && !t.decided.Replan {
		first := t.decided.Reason == ""
		if t.decided = d.Pays(t.outlook(state, now)); first && !t.decided.Replan {
			t.Log.Info("another plan is better, and a change does not pay yet", "why", t.decided.Reason)
		}
	}
	if t.decided.Replan {
		return t.decided.Reason
	}
	return ""
}

// carryOut turns a verdict into a proposal.
func (t *term) carryOut(ctx context.Context, state consensus.State, v verdict) error {
	ctx, cancel := context.WithTimeout(ctx, proposeTimeout)
	defer cancel()
	switch {
	case v.Doubt:
		return nil // it is being asked, and its host: it may be the link that is down, which comes back
	case v.Gone != "":
		if !v.Ended && t.Consensus.Answers(ctx, v.Gone) { // only its gossip does not come through
			t.Log.Debug("no heartbeats of a node that lives", "peer", v.Gone)
			t.Heartbeats.Touch(v.Gone, time.Now())
			return nil
		}
		m, _ := state.Member(v.Gone)
		t.Log.Warn("a node is gone", "peer", v.Gone, "why", v.Why)
		if v.By != "" {
			t.Log.Info("another node goes on in its place", "peer", v.By)
			err := t.Consensus.Propose(ctx, consensus.Substitute{
				Generation: state.Plan.Generation, Lost: v.Gone, ProcessEpoch: m.ProcessEpoch, By: v.By, Reason: v.Why,
			})
			if !errors.Is(err, consensus.ErrRejected) {
				return err
			}
		}
		return t.Consensus.Propose(ctx, consensus.SetMemberState{Peer: v.Gone, ProcessEpoch: m.ProcessEpoch, State: consensus.Gone, Reason: v.Why})
	case v.Rule != ruling{}:
		return t.proposeRuling(ctx, state, t.confirm(ctx, state, v.Rule))
	case v.Salvage != nil:
		t.salvages++
		t.Log.Info("having the newest step saved from memory", "generation", v.Salvage.Generation, "step", v.Salvage.Step)
		if err := t.Consensus.Propose(ctx, *v.Salvage); !errors.Is(err, consensus.ErrStale) {
			return err
		}
		return nil
	case v.Prepare:
		if v.Suspect != "" {
			state = t.stateWithout(state, v.Suspect)
		}
		t.nextPlan(state, v.Why)
		return nil
	case v.Pause:
		if _, ok := t.nextPlan(state, v.Why); !ok {
			return nil // the steps go on while the search looks
		}
		t.Log.Info("asking for a checkpoint before a new plan", "why", v.Why)
		return t.Consensus.Propose(ctx, consensus.WantPause{Count: state.PauseWanted + 1})
	case v.Rollback != 0:
		t.Log.Warn("going back to an older checkpoint", "from", state.Checkpoint.Step, "to", v.Rollback, "why", v.Why)
		return t.Consensus.Propose(ctx, consensus.Rollback{From: state.Checkpoint.Step, To: v.Rollback, Term: t.number, Reason: v.Why})
	case v.Again:
		again := state.Plan
		again.Generation, again.Start = state.Plan.Generation+1, state.Checkpoint.Step
		same := made{lines: []string{"the same plan as before: all of its members are back, and have their state in memory"}}
		return t.commitPlan(ctx, state, consensus.SetPlan{Plan: again, Term: t.number, Epoch: state.Epoch, Reasons: same.reasons(v.Why)})
	case v.Plan:
		return t.proposePlan(ctx, state, v.Why)
	}
	t.blocked.Store(v.Blocked)
	return nil
}

// nextPlan returns the next generation for a reason once a search has made it. It does not wait for the search. Members that
// are silent for longer than they ever are have no part in it.
func (t *term) nextPlan(state consensus.State, why string) (made, bool) {
	rest := without(state, t.silent)
	out := leftOut(rest, t.Now())
	o := occasion{roster{state.Epoch, state.Plan.Generation, namesOf(append(out, t.silent...))}, why}
	if t.madeFor == o && t.made != nil {
		return t.made.get()
	}
	left, found := remaining(rest, out, ""), t.schedule.watched.why
	// Of who is silent first, and then gone, the same plan is the answer.
	same := t.made != nil && t.madeFor.generation == o.generation && t.madeLeft == left && why != found && t.madeFor.why != found
	if t.madeFor, t.madeLeft = o, left; !same {
		if t.made = t.ahead.take(rest, out); t.made == nil {
			search := t.schedule.planner(why)
			t.made = begin(t.search, func(ctx context.Context) made { return makePlan(ctx, rest, out, search) })
		}
	}
	return t.made.get()
}

// makePlan searches for the plan of the next generation without the members that are left out.
func makePlan(ctx context.Context, state consensus.State, out []consensus.Member, search searchFunc) made {
	begun := time.Now()
	p, reasons, in, told, err := searchWithout(ctx, state, out, search)
	if errors.Is(err, planner.ErrNoFit) { // better a plan that may break than none
		p, reasons, in, told, err = searchWithout(ctx, state.BelieveMemory(), out, search)
	}
	lines := told
	if asked := state.Run.Train; asked.Stages != in.Run.Train.Stages || asked.Replicas != in.Run.Train.Replicas {
		lines = append(lines, fmt.Sprintf("the cut that was asked for needs more than %s, which is what there is", plan.Count(devicesOf(in), "device")))
	}
	return made{p, append(lines, reasons.Lines()...), err, time.Since(begun)}
}

// reasons returns why the plan is made and why it is as it is, in the bounds of the log.
func (m made) reasons(why string) []string {
	lines := append([]string{why}, m.lines...)
	lines = lines[:min(len(lines), maxReasons)]
	for i, line := range lines {
		lines[i] = wire.Clip(line, maxReasonBytes)
	}
	return lines
}

// proposePlan commits the next generation once there is one for this state. A refusal for age is no error: the next
// look sees the newer state.
func (t *term) proposePlan(ctx context.Context, state consensus.State, why string) error {
	m, ok := t.nextPlan(state, why)
	if !ok {
		return nil
	}
	t.made = nil // used up: a profile may change without the roster's epoch
	if m.err != nil {
		t.blocked.Store(withoutPackage(m.err))
		return nil
	}
	t.blocked.Store("")
	m.plan.Start = state.Checkpoint.Step // a search ahead knew an older one
	return t.commitPlan(ctx, state, consensus.SetPlan{Plan: m.plan, Term: t.number, Epoch: state.Epoch, Reasons: m.reasons(why)})
}

// commitPlan has the log take a plan. A refusal for age is no error.
func (t *term) commitPlan(ctx context.Context, state consensus.State, e consensus.SetPlan) error {
	err := t.Consensus.Propose(ctx, e)
	if err == nil {
		t.plans++
		t.noteLinks(state)
		t.Log.Info("committed a plan", "generation", e.Plan.Generation, "start", e.Plan.Start, "why", e.Reasons[0])
	}
	if errors.Is(err, consensus.ErrStale) {
		return nil
	}
	return err
}

// A plan's reasons in the log are bounded in count and length.
const (
	maxReasons     = 64
	maxReasonBytes = 512
)

// withoutPackage returns an error of the planner as people read it.
func withoutPackage(err error) string { return strings.TrimPrefix(err.Error(), "planner: ") }

// withOwnShares returns a plan with the schedule that its steps have, and its own shares of the micro-batches: those of the steps
// follow what devices show, of which other plans know nothing.
func (l *Leader) withOwnShares(p plan.Plan) plan.Plan {
	running, _ := l.Heartbeats.Running(p)
	if own, err := running.WithShares(p.ScheduleChoice().Micros); err == nil {
		return own
	}
	return p
}

// NextSchedule returns the coordinator's source of the schedule for each next step of a plan: the
// newest that a leader wanted. When the leader changes, the steps go on as they did.
func (l *Leader) NextSchedule(p plan.Plan) func(plan.Step) plan.ScheduleChoice {
	choice := p.ScheduleChoice()
	return func(plan.Step) plan.ScheduleChoice {
		leader, _, _ := l.Consensus.Leader()
		if w := l.Heartbeats.Wish(leader); w.Generation == p.Generation {
			if c, err := plan.ParseScheduleChoice(w.Schedule); err == nil {
				choice = c
			}
		}
		return choice
	}
}
