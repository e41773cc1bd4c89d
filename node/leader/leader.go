package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/node/gossip"
	"pnode/node/leader/slowlines"
	"pnode/node/leader/witness"
	"pnode/planner"
	"pnode/planner/departures"
	"pnode/planner/plan"
	"pnode/planner/report"
	"pnode/swarm/consensus"
)

const (
	// decideEvery is the time between two looks at whether something has to change.
	decideEvery = 500 * time.Millisecond
	// proposeTimeout bounds one proposal unless Config says otherwise. A leader that cannot commit loses its term.
	proposeTimeout = 10 * time.Second
	// askTimeout bounds the questions to a silent member and its host.
	askTimeout = 10 * time.Second
)

// Config holds the parts that a Leader works with. All fields but Dir, Electable, Losses, Exhibits, Stops, Patience, AwaitHolders, Planner and Now are needed.
type Config struct {
	Self plan.PeerID
	// Dir is the node's folder, which keeps what was seen of slow lines; empty keeps nothing.
	Dir        string
	Consensus  Consensus
	Peers      Peers
	Heartbeats *gossip.Tracker
	// Electable reports whether this node may be elected; nil says that it may.
	Electable func() bool
	// Losses returns the losses of the steps after one of a generation, as far as they are known; nil knows none.
	Losses func(after plan.Generation, step plan.Step) []gossip.StepLoss
	// Exhibits has the coordinators of replicas with local steps show what they have of others' messages; without Ask nobody does.
	Exhibits witness.Config
	// Stops returns how long the newest changes of plan that followed a pause have stopped the steps, the newest last. nil knows none.
	Stops func() []planner.Stop
	// Patience returns how long to wait for the outcome of a proposal; nil is 10 s.
	Patience func() time.Duration
	// AwaitHolders is how long a start of the whole run waits for members that alone have layers of the newest checkpoint.
	AwaitHolders time.Duration
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
	// Hints says what would have a run train faster; nil says nothing.
	Hints func(context.Context, planner.Input) ([]string, error)
	// Repair takes no time to speak of.
	Repair func(planner.Input) (plan.Plan, plan.Reasons, error)
}

// Leader decides for the run while its node is elected, and does nothing else while it is not.
// All methods may be called concurrently.
type Leader struct {
	Config
	searches  errgroup.Group
	questions questions
	hearings  witness.Hearings
	found     chan struct{} // receives a value when Run is to look
	blocked   atomic.Value  // a string: why there is no plan
	wish      atomic.Pointer[gossip.ScheduleWish]
	wishes    chan struct{} // receives a value when there is another wish
	spares    atomic.Pointer[gossip.Spares]
	hints     atomic.Pointer[gossip.Hints]
	ended     ended
	clock     departures.Watch // belongs to Run
	speeds    speeds           // belongs to Run
	lines     slowlines.Lines  // belongs to Run
	kept      *slowlines.File  // belongs to Run
}

// New returns a Leader whose duties begin with Run.
func New(c Config) *Leader {
	if c.Planner.Make == nil {
		c.Planner = Planner{Make: planner.Make, ShouldReplan: planner.ShouldReplan, Reselect: planner.Reselect, Hints: report.Hints, Repair: planner.Repair}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Patience == nil {
		c.Patience = func() time.Duration { return proposeTimeout }
	}
	if c.Electable == nil {
		c.Electable = func() bool { return true }
	}
	l := &Leader{Config: c, found: make(chan struct{}, 1), wishes: make(chan struct{}, 1)}
	l.speeds.beats = l.Heartbeats
	l.searches.SetLimit(maxSearches)
	l.kept = slowlines.InFolder(l.Dir, l.Log)
	return l
}

// Fill puts into this node's heartbeat why there is no plan, the schedule that is wanted, what members without a stage would add, and what would help.
func (l *Leader) Fill(b *gossip.Heartbeat) {
	b.Blocked, _ = l.blocked.Load().(string)
	b.Wish, b.Spares, b.Hints = l.wish.Load(), l.spares.Load(), l.hints.Load()
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
	ctx, cancel := context.WithTimeout(ctx, l.Patience())
	defer cancel()
	if err := l.Consensus.Propose(ctx, update); err != nil {
		l.Log.Debug("take over a profile", "of", p.Peer, "cause", err)
	}
}

// Run carries out the leader's duties on whichever node is elected, until ctx ends. It returns
// after its searches, which end with ctx.
func (l *Leader) Run(ctx context.Context) {
	defer l.questions.work.Wait()
	defer l.hearings.Wait()
	defer func() { _ = l.searches.Wait() }() // they return no errors
	tick := time.NewTicker(decideEvery)
	defer tick.Stop()
	var t *term
	var seen sightings
	var losses ahead
	var learner *scheduleWatch // while another member leads
	search := func(f func(context.Context)) bool { return l.search(ctx, f) }
	l.kept.Load(&l.lines, l.Now())
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
		seen.look(state.Members, l.Heartbeats.Heard, l.Heartbeats.Slack, now)
		l.clock.Look(state.Departures, now)
		if l.speeds.look(state, now) {
			l.tellSpeeds(state)
		}
		l.kept.Keep(&l.lines, now)
		losses.figures = l.figures()
		leader, number, self := l.Consensus.Leader()
		if !self {
			if t = nil; learner == nil {
				learner = &scheduleWatch{Leader: l, spawn: search}
			}
			l.follow(state, leader, learner, &losses)
			continue
		}
		if t == nil || t.number != number {
			t = newTerm(l, number, search, &losses)
		}
		if learner != nil {
			t.next.schedule.links, learner = learner.links, nil
		}
		if state.Run == nil {
			continue
		}
		if err := t.look(ctx, state, &seen); err != nil && ctx.Err() == nil {
			level := slog.LevelWarn
			if errors.Is(err, consensus.ErrNoLeader) {
				level = slog.LevelInfo // who waits for what is told
			}
			l.Log.Log(ctx, level, "what this node decided as the leader is not in the log yet", "cause", err)
		}
		seen.busy = time.Since(now)
	}
}

// follow has nothing to decide while another member leads. Where this node may lead next, it learns which lines are slow, and looks
// for the plan without the leader, if that one has a part in the plan.
func (l *Leader) follow(state consensus.State, leader plan.PeerID, learner *scheduleWatch, losses *ahead) {
	l.blocked.Store("")
	l.wish.Store(nil)
	l.spares.Store(nil)
	l.hints.Store(nil)
	if state.Run == nil || state.Plan.Generation == 0 || state.StopWanted || state.Finished || !l.Electable() {
		return
	}
	learner.learn(state)
	if state.Plan.Places(leader) && !state.Paused() {
		losses.look(state, leftOut(state, l.Now()), []plan.PeerID{leader}, learner.spawn, learner.planner(""))
	}
}

// figures names the speeds and lines that plans count on besides profiles.
func (l *Leader) figures() string { return fmt.Sprint(l.speeds.ratios, l.lines.Changes()) }

// tellSpeeds logs which devices plans count on with other speeds than their profiles say.
func (l *Leader) tellSpeeds(state consensus.State) {
	var texts []string
	for _, r := range l.speeds.ratios {
		texts = append(texts, fmt.Sprintf("%s %d.%03d", consensus.DeviceOf(state, r.Worker), r.Permille/1000, r.Permille%1000))
	}
	l.Log.Info("plans count on other speeds: times as long as profiles say", "of", strings.Join(texts, ", "))
}

// search runs f on a goroutine of its own and wakes Run after it, unless too many run already.
func (l *Leader) search(ctx context.Context, f func(context.Context)) bool {
	return l.searches.TryGo(func() error {
		f(ctx)
		l.wake()
		return nil
	})
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
