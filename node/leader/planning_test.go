package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// oneLeader is a consensus of which self is always the leader. It carries entries out at once.
type oneLeader struct {
	mu       sync.Mutex // guards what follows
	state    consensus.State
	proposed []consensus.Entry
}

func (c *oneLeader) State() consensus.State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state
}

func (c *oneLeader) Leader() (plan.PeerID, plan.Term, bool)        { return "a", 1, true }
func (c *oneLeader) Answers(_ context.Context, p plan.PeerID) bool { return p != "dead" }

// Changed never says so: the leader looks twice a second anyway.
func (c *oneLeader) Changed() <-chan struct{} { return nil }

func (c *oneLeader) Propose(_ context.Context, e consensus.Entry) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.proposed = append(c.proposed, e)
	switch e := e.(type) {
	case consensus.SetMemberState:
		members := append([]consensus.Member(nil), c.state.Members...)
		for i := range members {
			if members[i].Peer == e.Peer {
				members[i].State = e.State
			}
		}
		c.state.Members = members
		c.state.Epoch++
	case consensus.SetPlan:
		if e.Epoch != c.state.Epoch {
			return consensus.ErrStale
		}
		c.state.Plan = e.Plan
	}
	return nil
}

// strangers knows no capabilities, and hosts that say that a process has ended.
type strangers struct{}

func (strangers) Refuses(context.Context, plan.PeerID) bool { return true }

// TestPlanningDoesNotDelayTheDetectionOfTheDead: while the planner searches, a member dies and is
// marked gone; the plan of that search is out of date and dropped, the next one does without it.
func TestPlanningDoesNotDelayTheDetectionOfTheDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := rehearsedRun()
		run.Train.Stages = 0
		members := []consensus.Member{
			{Peer: "a", State: consensus.Active, Profile: withDevices(1)},
			{Peer: "dead", State: consensus.Active, Profile: withDevices(1)},
		}
		log := &oneLeader{state: consensus.State{Run: &run, Members: members, Epoch: 1}}
		release := make(chan struct{})
		var mu sync.Mutex
		var searches []planner.Input
		l := New(Config{
			Self: "a", Consensus: log, Peers: strangers{}, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler),
			Planner: Planner{
				Make: func(_ context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
					mu.Lock()
					searches = append(searches, in)
					mu.Unlock()
					if len(in.Members) == 2 {
						<-release
					}
					return plan.Plan{Generation: plan.Generation(len(in.Members)) * 10, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}}}}, plan.Reasons{}, nil
				},
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return planner.Decision{}, errors.New("not asked for here")
				},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		time.Sleep(DeadAfter + 5*decideEvery) // virtual: the first search does not end
		synctest.Wait()
		if m, _ := log.State().Member("dead"); m.State != consensus.Gone {
			t.Errorf("the dead member is %s while the planner searches", m.State)
		}
		time.Sleep(2 * decideEvery)
		synctest.Wait()
		if g := log.State().Plan.Generation; g != 10 {
			t.Errorf("generation %d, want the plan for the living alone", g)
		}
		close(release) // the search for both ends last
		time.Sleep(2 * decideEvery)
		synctest.Wait()
		if g := log.State().Plan.Generation; g != 10 {
			t.Errorf("generation %d: a plan that was out of date has been committed", g)
		}
		cancel()
		<-ended
		if len(searches) != 2 || len(searches[0].Members) != 2 || len(searches[1].Members) != 1 {
			t.Errorf("%d searches, want one for two members and one for the living", len(searches))
		}
	})
}

// refusing is a consensus that takes no plan before renew has given a member another profile.
type refusing struct {
	*oneLeader
	renew func()
}

func (c *refusing) Propose(ctx context.Context, e consensus.Entry) error {
	if _, ok := e.(consensus.SetPlan); ok && c.renew != nil {
		c.renew()
		c.renew = nil
		return errors.New("no majority")
	}
	return c.oneLeader.Propose(ctx, e)
}

// TestAPlanIsProposedOnce: after a proposal that failed, the next plan is made from the profiles of now, which change
// without the roster's epoch.
func TestAPlanIsProposedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := rehearsedRun()
		run.Train.Stages = 0
		members := func(devices int) []consensus.Member {
			return []consensus.Member{{Peer: "a", State: consensus.Active, Profile: withDevices(devices)}}
		}
		log := &refusing{oneLeader: &oneLeader{state: consensus.State{Run: &run, Members: members(2), Epoch: 1}}}
		log.renew = func() {
			log.mu.Lock()
			defer log.mu.Unlock()
			log.state.Members = members(1)
		}
		l := New(Config{
			Self: "a", Consensus: log, Peers: strangers{}, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler),
			Planner: Planner{
				Make: func(_ context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
					devices := len(in.Members[0].Profile.Devices)
					return plan.Plan{Generation: plan.Generation(devices), Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}}}}, plan.Reasons{}, nil
				},
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return planner.Decision{}, errors.New("not asked for here")
				},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		time.Sleep(5 * decideEvery)
		cancel()
		<-ended
		if g := log.State().Plan.Generation; g != 1 {
			t.Errorf("the plan is for %d devices, want one for the device that is left", g)
		}
	})
}

// TestABetterPlanWaitsForCopies: a newcomer helps while copies of a checkpoint are under way. The run is paused once they are
// made, and not before.
func TestABetterPlanWaitsForCopies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := rehearsedRun()
		current := plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}}}}
		log := &oneLeader{state: consensus.State{Run: &run, Epoch: 1, Plan: current, Members: []consensus.Member{
			{Peer: "a", State: consensus.Active, Profile: withDevices(1)}, {Peer: "new", State: consensus.Active, Profile: withDevices(1)},
		}}}
		beats := gossip.NewTracker()
		l := New(Config{
			Self: "a", Consensus: log, Peers: strangers{}, Heartbeats: beats, Log: slog.New(slog.DiscardHandler),
			Planner: Planner{
				Make: func(context.Context, planner.Input) (plan.Plan, plan.Reasons, error) {
					return plan.Plan{}, plan.Reasons{}, nil
				},
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return planner.Decision{Replan: true, Reason: "new helps", Spares: []planner.Spare{{Peer: "new", With: 7, Without: 8}}}, nil
				},
				Reselect: func(planner.Input, plan.Plan, planner.Measured) (planner.Reselection, error) {
					return planner.Reselection{}, planner.ErrNotElastic
				},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		paused := func() bool {
			synctest.Wait()
			log.mu.Lock()
			defer log.mu.Unlock()
			return slices.ContainsFunc(log.proposed, func(e consensus.Entry) bool { _, ok := e.(consensus.WantPause); return ok })
		}
		for i := range 20 {
			if i > 0 && paused() {
				t.Fatalf("the run is paused after %d s, amid copies", i)
			}
			beats.Note(gossip.Heartbeat{Peer: "a", Generation: 1, Step: 3, Copying: true}, time.Now())
			beats.Note(gossip.Heartbeat{Peer: "new", Generation: 1}, time.Now())
			time.Sleep(time.Second)
		}
		beats.Note(gossip.Heartbeat{Peer: "a", Generation: 1, Step: 3}, time.Now())
		time.Sleep(2 * decideEvery)
		if !paused() {
			t.Error("the copies are made, and the run is not paused")
		}
		var told gossip.Heartbeat
		if l.Fill(&told); told.Spares == nil || told.Spares.Generation != 1 || !slices.Equal(told.Spares.Members, []gossip.Spare{{Peer: "new", WithNanos: 7, WithoutNanos: 8}}) {
			t.Errorf("heartbeats say %+v of the newcomer", told.Spares)
		}
		cancel()
		<-ended
	})
}

// TestWhatWouldHelpIsTold: once for a roster, after the plan has run for a while; another roster is searched for anew, and the searches rest.
func TestWhatWouldHelpIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := rehearsedRun()
		current := plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}}}}
		log := &oneLeader{state: consensus.State{Run: &run, Epoch: 1, Plan: current, Members: []consensus.Member{{Peer: "a", State: consensus.Active, Profile: withDevices(1)}}}}
		beats := gossip.NewTracker()
		const took = 10 * time.Second
		searches := 0
		l := New(Config{
			Self: "a", Consensus: log, Peers: strangers{}, Heartbeats: beats, Log: slog.New(slog.DiscardHandler),
			Planner: Planner{
				Make: func(context.Context, planner.Input) (plan.Plan, plan.Reasons, error) {
					return plan.Plan{}, plan.Reasons{}, nil
				},
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return planner.Decision{}, nil
				},
				Reselect: func(planner.Input, plan.Plan, planner.Measured) (planner.Reselection, error) {
					return planner.Reselection{}, planner.ErrNotElastic
				},
				Hints: func(_ context.Context, in planner.Input) ([]string, error) {
					searches++
					time.Sleep(took)
					return []string{fmt.Sprintf("one more machine beside %d", len(in.Members))}, nil
				},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		runs := func(d time.Duration) (told *gossip.Hints) {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				for _, p := range []plan.PeerID{"a", "new"} {
					beats.Note(gossip.Heartbeat{Peer: p, Generation: 1, Step: 3}, time.Now())
				}
			}
			synctest.Wait()
			var b gossip.Heartbeat
			l.Fill(&b)
			return b.Hints
		}
		if told := runs(hintsAfter - 2*time.Second); told != nil || searches != 0 {
			t.Errorf("early: %+v after %d searches", told, searches)
		}
		if told := runs(took + time.Minute); told == nil || told.Generation != 1 || !slices.Equal(told.Texts, []string{"one more machine beside 1"}) || searches != 1 {
			t.Errorf("%+v after %d searches", told, searches)
		}
		log.mu.Lock()
		log.state.Epoch++
		log.state.Members = append(log.state.Members, consensus.Member{Peer: "new", State: consensus.Active, Profile: withDevices(1)})
		log.mu.Unlock()
		if told := runs(hintsAfter + took); searches != 1 || told == nil {
			t.Errorf("%d searches before the processor had its rest, %+v", searches, told)
		}
		if told := runs((aheadRest + 1) * took); !slices.Equal(told.Texts, []string{"one more machine beside 2"}) || searches != 2 {
			t.Errorf("%+v after %d searches", told, searches)
		}
		cancel()
		<-ended
	})
}

// TestSearchesForHintsEnd: one at a time, each with its generation or after its time, however often plans change; what it has found by then is told.
func TestSearchesForHintsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := rehearsedRun()
		state := consensus.State{Run: &run, Epoch: 1, Members: []consensus.Member{{Peer: "a", State: consensus.Active, Profile: withDevices(1)}}}
		state.Plan = plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}}}}
		var running, searches atomic.Int32
		l := New(Config{
			Self: "a", Consensus: &oneLeader{state: state}, Peers: strangers{}, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler),
			Planner: Planner{
				Make: planner.Make,
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return planner.Decision{}, nil
				},
				Hints: func(ctx context.Context, _ planner.Input) ([]string, error) {
					searches.Add(1)
					if running.Add(1) > 1 {
						t.Error("two searches at once")
					}
					defer running.Add(-1)
					<-ctx.Done()
					return []string{"one of many"}, context.Cause(ctx)
				},
			},
		})
		searching := func(f func(context.Context)) bool { go f(t.Context()); return true }
		b := betterWatch{Leader: l, search: searching, schedule: &scheduleWatch{Leader: l, spawn: searching}}
		after := func(d time.Duration) *gossip.Hints {
			for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(time.Second) {
				b.compare(moment{state: state, now: time.Now()})
				synctest.Wait()
			}
			return l.hints.Load()
		}
		if told := after(hintsAfter + hintsFor + 5*time.Second); told == nil || told.Generation != 1 || !slices.Equal(told.Texts, []string{"one of many"}) {
			t.Errorf("after its time: %+v", told)
		}
		after(aheadRest * hintsFor)
		begun := searches.Load()
		for range 30 { // each is there for as long as a search needs to begin, and not to end
			state.Plan.Generation++
			after(hintsAfter + hintsFor/2)
		}
		if n := searches.Load() - begun; n < 2 || n > 8 {
			t.Errorf("%d searches in 30 generations", n)
		}
		if told := l.hints.Load(); told.Generation != 1 {
			t.Errorf("a search whose generation ended told %+v", told)
		}
		after(2 * hintsFor)
	})
}

// TestAChangeIsWeighedByWhatEarlierOnesTook: where state came ten times as fast as predicted, the next change pays that would not by its prediction.
func TestAChangeIsWeighedByWhatEarlierOnesTook(t *testing.T) {
	for _, c := range []struct {
		name  string
		stops []planner.Stop
		pays  bool
	}{
		{"nothing was learned", nil, false},
		{"state came as slowly as predicted", []planner.Stop{{Ends: 1, Rest: 2e9, Load: 120e9}}, false},
		{"state came fast", []planner.Stop{{Ends: 1, Rest: 2e9, Load: 12e9}}, true},
		{"state came fast, and all else took long", []planner.Stop{{Ends: 1, Rest: 200e9, Load: 12e9}}, false},
	} {
		run := rehearsedRun()
		run.Train.Steps = 100
		state := consensus.State{Run: &run, Epoch: 1, Members: []consensus.Member{{Peer: "a", State: consensus.Active, Profile: withDevices(1)}}}
		state.Plan = plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}}}}
		found := planner.Decision{Replan: true, Reason: "better", Change: planner.Change{Now: 200e9, Then: 1e9, Bytes: 1, Move: 120e9}}
		stops := []planner.Stop(nil)
		l := New(Config{
			Self: "a", Consensus: &oneLeader{state: state}, Peers: strangers{}, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler),
			Stops: func() []planner.Stop { return stops },
			Planner: Planner{
				Make: planner.Make,
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return found, nil
				},
			},
		})
		atOnce := func(f func(context.Context)) bool { f(t.Context()); return true }
		b := betterWatch{Leader: l, search: atOnce, schedule: &scheduleWatch{Leader: l, spawn: atOnce}}
		if why := b.compare(moment{state: state, now: time.Now()}); why == "" {
			t.Fatalf("%s: the first change does not pay: %s", c.name, b.decided.Reason)
		}
		state.Plan.Generation, stops = 2, c.stops
		found.Change.Now = 2e9
		if why := b.compare(moment{state: state, now: time.Now()}); (why != "") != c.pays {
			t.Errorf("%s: it pays: %t, want %t: %s", c.name, why != "", c.pays, b.decided.Reason)
		}
	}
}
