package leader

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// TestPlansAhead: the loss of each member is answered before it happens, within a share of time; when one is lost its answer
// is taken without another search, and after a change of the others it is not.
func TestPlansAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const took = time.Second // of a search
		var mu sync.Mutex        // guards searched
		var searched []string
		search := func(_ context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
			time.Sleep(took)
			var names []string
			for _, m := range in.Members {
				names = append(names, string(m.Peer))
			}
			mu.Lock()
			defer mu.Unlock()
			searched = append(searched, strings.Join(names, ""))
			return plan.Plan{Generation: in.Generation}, plan.Reasons{}, nil
		}
		on := func(f func(context.Context)) bool { go f(t.Context()); return true }
		run := rehearsedRun()
		member := func(p plan.PeerID) consensus.Member {
			return consensus.Member{Peer: p, State: consensus.Active, Profile: withDevices(1)}
		}
		state := consensus.State{Run: &run, Members: []consensus.Member{member("a"), member("b"), member("c")}, Plan: plan.Plan{Generation: 3}}
		var a ahead
		begun := time.Now()
		for time.Since(begun) < 2*(1+aheadRest)*took {
			a.look(state, nil, []plan.PeerID{"b", "c"}, on, search)
			time.Sleep(decideEvery)
			synctest.Wait()
		}
		if want := []string{"ac", "ab"}; !slices.Equal(searched, want) {
			t.Fatalf("searched for %v in %v, want %v, one after the other", searched, time.Since(begun), want)
		}
		lost := state
		lost.Epoch++
		lost.Members = slices.Clone(state.Members)
		lost.Members[1].State = consensus.Gone
		changed := lost
		changed.Members = slices.Clone(lost.Members)
		changed.Members[2].Profile = withDevices(2)
		if a.take(changed, nil) != nil {
			t.Error("an answer was taken though another member has other devices by now")
		}
		next := lost
		next.Plan.Generation++
		if a.take(next, nil) != nil {
			t.Error("an answer of the plan before was taken")
		}
		if !a.ready(state, nil, "b") {
			t.Error("the answer to the loss of b is not ready")
		}
		a.figures = "a device is slower"
		if a.ready(state, nil, "b") {
			t.Error("an answer by other speeds is ready")
		}
		a.figures = ""
		m, ok := a.take(lost, nil).get()
		if !ok || m.plan.Generation != 4 || m.err != nil {
			t.Errorf("the answer to the loss of b is %+v, known %t", m, ok)
		}
		if a.take(lost, nil) != nil {
			t.Error("an answer was taken twice")
		}
		time.Sleep(aheadAge)
		a.look(state, nil, []plan.PeerID{"c"}, on, search)
		time.Sleep(2 * took)
		synctest.Wait()
		if len(searched) != 3 || searched[2] != "ab" {
			t.Errorf("searched for %v, want the loss of c answered anew", searched)
		}
		lost.Members = slices.Clone(state.Members)
		lost.Members[2].State = consensus.Gone
		a.figures = "a device is slower"
		if a.take(lost, nil) != nil {
			t.Error("an answer by other speeds was taken")
		}
		time.Sleep(2 * aheadAgain)
		a.look(state, nil, []plan.PeerID{"c"}, on, search)
		time.Sleep((1 + aheadRest) * took)
		a.look(state, nil, []plan.PeerID{"c"}, on, search)
		time.Sleep(2 * took)
		synctest.Wait()
		if len(searched) != 4 || a.take(lost, nil) == nil {
			t.Errorf("searched for %v, want the loss of c answered anew by other speeds", searched)
		}
	})
}

// TestManyJoinAtOnce: each newcomer puts the answers out of date, and the next search waits until more of them are in.
func TestManyJoinAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var members []int // of each search; one at a time
		search := func(_ context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
			members = append(members, len(in.Members))
			return plan.Plan{Generation: in.Generation}, plan.Reasons{}, nil
		}
		on := func(f func(context.Context)) bool { go f(t.Context()); return true }
		run := rehearsedRun()
		state := consensus.State{Run: &run, Plan: plan.Plan{Generation: 1}}
		var a ahead
		const joins = 20
		for i := range joins {
			state.Members = append(state.Members, consensus.Member{Peer: plan.PeerID('a' + rune(i)), State: consensus.Active, Profile: withDevices(1)})
			a.look(state, nil, []plan.PeerID{"a"}, on, search)
			time.Sleep(aheadAgain / 10)
			synctest.Wait()
		}
		time.Sleep(aheadAgain)
		a.look(state, nil, []plan.PeerID{"a"}, on, search)
		synctest.Wait()
		if len(members) != 3 || members[len(members)-1] != joins-1 {
			t.Errorf("searches with %v members, want 3 while %d join, the last with all but one", members, joins)
		}
	})
}

// TestOnlyWhoMayLeadPlansAhead: a member that cannot be elected does not look for the plan without the leader.
func TestOnlyWhoMayLeadPlansAhead(t *testing.T) {
	run := rehearsedRun()
	state := consensus.State{Run: &run, Plan: plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a"}}}}}}
	for _, electable := range []bool{true, false} {
		l := New(Config{Heartbeats: gossip.NewTracker(), Electable: func() bool { return electable }})
		var losses ahead
		searches := 0
		learner := &scheduleWatch{Leader: l, spawn: func(func(context.Context)) bool { searches++; return true }}
		l.follow(state, "a", learner, &losses)
		if (searches == 1) != electable {
			t.Errorf("%d searches of a member that may be elected: %t", searches, electable)
		}
	}
}

// TestALossIsRepairedWhileASearchLooks: where the search for the plan without a lost member takes long, the plan of before goes on without it, and
// is then compared with a better one. A short search is waited for, and so is one where nothing can be repaired.
func TestALossIsRepairedWhileASearchLooks(t *testing.T) {
	for name, c := range map[string]struct {
		took   time.Duration // of a search
		repair error
		want   int // layers, of the plan that comes
	}{
		"a long search": {time.Minute, nil, 7},
		"a short search, which ends a moment after its plan is needed": {3200 * time.Millisecond, nil, 1},
		"no repair": {20 * time.Second, planner.ErrNoFit, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lossDuringASearch(t, c.took, c.repair, c.want) })
		})
	}
}

func lossDuringASearch(t *testing.T, took time.Duration, fails error, layers int) {
	log := twoStages()
	to := func(in planner.Input, end int) plan.Plan {
		return plan.Plan{Generation: in.Generation, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu", Layers: plan.LayerRange{End: end}}}}}}
	}
	var mu sync.Mutex // guards compared
	compared := 0
	l := New(Config{
		Self: "a", Consensus: log, Peers: strangers{}, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler),
		Planner: Planner{
			Make: func(ctx context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
				select {
				case <-ctx.Done():
					return plan.Plan{}, nil, ctx.Err()
				case <-time.After(took):
					return to(in, 1), plan.Reasons{}, nil
				}
			},
			Repair: func(in planner.Input) (plan.Plan, plan.Reasons, error) {
				if len(in.Members) != 1 || in.Previous == nil || in.Previous.Generation != 1 {
					t.Errorf("repairs generation %d for %d members", in.Previous.Generation, len(in.Members))
				}
				return to(in, 7), plan.Reasons{}, fails
			},
			ShouldReplan: func(_ context.Context, _ planner.Input, p plan.Plan) (planner.Decision, error) {
				mu.Lock()
				defer mu.Unlock()
				if p.Generation == 2 {
					compared++
				}
				return planner.Decision{}, nil
			},
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	l.Ended("b") // before any search ahead
	time.Sleep(min(took, 5*repairAfter) + salvageGrace + 6*decideEvery)
	if fails != nil {
		time.Sleep(took)
	}
	synctest.Wait()
	if now := log.State().Plan; now.Generation != 2 || now.Replicas[0].Stages[0].Layers.End != layers {
		t.Errorf("generation %d with %v, want 2 with %d layers", now.Generation, now.Replicas, layers)
	}
	mu.Lock()
	if compared != 1 {
		t.Errorf("the plan that came was compared with a better one %d times", compared)
	}
	mu.Unlock()
	cancel()
	<-ended
}

// twoStages returns the log of a run of two nodes, which a leads, with a stage each.
func twoStages() *oneLeader {
	run := rehearsedRun()
	run.Train.Stages = 0
	current := plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{Stages: []plan.Placement{
		{Peer: "a", Device: "cpu", Layers: plan.LayerRange{First: 0, End: 1}}, {Peer: "b", Device: "cpu", Layers: plan.LayerRange{First: 1, End: 2}},
	}}}}
	return &oneLeader{state: consensus.State{Run: &run, Epoch: 1, Plan: current, Members: []consensus.Member{
		{Peer: "a", State: consensus.Active, Profile: withDevices(1)}, {Peer: "b", State: consensus.Active, Profile: withDevices(1)},
	}}}
}

// TestALossIsAnsweredWithoutASearch: the leader plans for a loss as soon as it knows of it, with the plan of before.
func TestALossIsAnsweredWithoutASearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := twoStages()
		var mu sync.Mutex // guards searches
		searches := 0
		l := New(Config{
			Self: "a", Consensus: log, Peers: strangers{}, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler),
			Planner: Planner{
				Make: func(_ context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
					mu.Lock()
					defer mu.Unlock()
					if searches++; searches > 1 {
						return plan.Plan{}, plan.Reasons{}, errors.New("not asked for again")
					}
					return plan.Plan{Generation: in.Generation, Replicas: []plan.Pipeline{{Stages: []plan.Placement{{Peer: "a", Device: "cpu"}}}}}, plan.Reasons{}, nil
				},
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return planner.Decision{}, nil
				},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		time.Sleep(4 * decideEvery)
		synctest.Wait()
		mu.Lock()
		if searches != 1 {
			t.Errorf("%d searches before a loss, want one for the loss of b", searches)
		}
		mu.Unlock()
		l.Ended("b")
		time.Sleep(salvageGrace + 4*decideEvery)
		synctest.Wait()
		if now := log.State(); now.Plan.Generation != 2 {
			t.Errorf("generation %d, want the plan that was made ahead", now.Plan.Generation)
		}
		cancel()
		<-ended
	})
}
