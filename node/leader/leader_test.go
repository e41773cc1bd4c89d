package leader

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pnode/node/gossip"
	"pnode/pipeline/link/silence"
	"pnode/planner"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

func TestNoPlanIsToldWithoutThePackage(t *testing.T) {
	err := fmt.Errorf("%w: the planner: of a", planner.ErrNoFit)
	if got, want := withoutPackage(err), "model does not fit: the planner: of a"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// watcher looks at one member, b, whose process is the first.
type watcher struct {
	sightings
	now   time.Time
	heard time.Time
	slack time.Duration
	b     consensus.Member
}

func newWatcher() *watcher {
	return &watcher{now: time.Unix(1000, 0), b: consensus.Member{Peer: "b", ProcessEpoch: 1}}
}

// look lets time pass and looks.
func (w *watcher) look(after time.Duration) (silent, lost time.Duration) {
	w.now = w.now.Add(after)
	w.sightings.look([]consensus.Member{w.b}, func(plan.PeerID) time.Time { return w.heard }, func(plan.PeerID) time.Duration { return w.slack }, w.now)
	silent, _, lost = w.silent(w.b)
	return silent, lost
}

// listen looks on while b is heard every second.
func (w *watcher) listen(s int) {
	for range s {
		w.look(decideEvery)
		w.look(decideEvery)
		w.heard = w.now
	}
	w.look(0)
}

// TestASlowPaceIsNoSilence: a member that sends a heartbeat every 16 s is missed as soon after it was due as one that sends one every
// second, and nothing of that is left once it has a quicker pace.
func TestASlowPaceIsNoSilence(t *testing.T) {
	w := newWatcher()
	w.slack = 15 * time.Second
	w.heard = w.now
	for range 20 {
		for range 32 {
			if silent, _ := w.look(decideEvery); silent > time.Second {
				t.Fatalf("silent for %v within its pace", silent)
			}
		}
		w.heard = w.now
	}
	w.look(0)
	if !w.steady(w.b, w.now.Add(-time.Minute), w.now.Add(-time.Second)) {
		t.Error("not steady")
	}
	if silent, lost := w.look(0); silent != 0 || lost != silence.Least {
		t.Errorf("silent %v, lost after %v, want 0 and %v", silent, lost, silence.Least)
	}
	for range 44 {
		w.look(decideEvery)
	}
	if silent, _ := w.look(0); silent != 7*time.Second {
		t.Errorf("silent for %v after 22 s, want 7 s", silent)
	}
	w.heard, w.slack = w.now, 0
	w.look(0)
	for range 6 {
		w.look(decideEvery)
	}
	if silent, lost := w.look(0); silent != 3*time.Second || lost > 15*time.Second {
		t.Errorf("silent for %v and lost after %v at the quick pace", silent, lost)
	}
}

func TestSilenceCountsFromTheNewestWord(t *testing.T) {
	w := newWatcher()
	w.heard = w.now.Add(-time.Hour) // of an earlier process
	if silent, lost := w.look(0); silent != 0 || lost != silence.Most {
		t.Errorf("at the first look: silent for %v, lost after %v", silent, lost)
	}
	if silent, _ := w.look(decideEvery); silent != decideEvery {
		t.Errorf("never heard: silent for %v", silent)
	}
	w.listen(20)
	w.look(decideEvery)
	if silent, lost := w.look(decideEvery); silent != 2*decideEvery || lost != silence.Least {
		t.Errorf("heard every second: silent for %v, lost after %v", silent, lost)
	}
	w.b.ProcessEpoch = 2
	if silent, lost := w.look(decideEvery); silent != 0 || lost != silence.Most {
		t.Errorf("started again: silent for %v, lost after %v", silent, lost)
	}
}

func TestWhoSleptBlamesNobody(t *testing.T) {
	w := newWatcher()
	w.listen(20)
	if silent, lost := w.look(8 * time.Hour); silent > lookCounts || lost != silence.Least {
		t.Errorf("b is blamed for %v of sleep, and lost after %v", silent, lost)
	}
	w.listen(20)
	if _, lost := w.look(0); lost > max(silence.Least, 4*lookCounts) { // twice what was counted of the sleep, and a second
		t.Errorf("after the sleep b is lost after %v", lost)
	}
}

// TestWhoEntersIsSeen: for how long members have been entering, while they are heard.
func TestWhoEntersIsSeen(t *testing.T) {
	w := newWatcher()
	w.b.State = consensus.Joining
	w.look(0)
	w.listen(8)
	if got := w.entering(); got != 8*time.Second {
		t.Errorf("b enters since %v, want 8 s", got)
	}
	for range DeadAfter/decideEvery + 1 {
		w.look(decideEvery)
	}
	if got := w.entering(); got != 0 {
		t.Errorf("b is silent, and enters since %v", got)
	}
	w.b.ProcessEpoch = 2
	if w.look(0); w.entering() != 1 {
		t.Errorf("b was started again, and enters since %v", w.entering())
	}
	w.b.State = consensus.Active
	if w.look(decideEvery); w.entering() != 0 {
		t.Errorf("b has entered, and enters since %v", w.entering())
	}
}

// TestWhoIsStarvedMissesTheDead: one whose looks are always late needs longer, but not for ever.
func TestWhoIsStarvedMissesTheDead(t *testing.T) {
	const late = 5 * decideEvery
	w := newWatcher()
	w.listen(20)
	looks := 0
	for silent, lost := w.look(late); silent <= lost; silent, lost = w.look(late) {
		if looks++; looks > 10 {
			t.Fatalf("after %d looks b is silent for %v, lost after %v", looks, silent, lost)
		}
	}
	if looks < 2 {
		t.Error("b is lost at the first look")
	}
}

// TestWhoWaitsForAnswersIsNoSleeper: the time in which the silent are asked counts.
func TestWhoWaitsForAnswersIsNoSleeper(t *testing.T) {
	w := newWatcher()
	w.look(0)
	w.busy = time.Second
	if silent, _ := w.look(2 * time.Second); silent != 2*time.Second {
		t.Errorf("silent for %v of 2s", silent)
	}
	w.busy = time.Hour
	if silent, _ := w.look(time.Hour); silent != 2*time.Second+lookCounts+mostBusy {
		t.Errorf("silent for %v after an hour's answer", silent)
	}
}

// silentHosts says of no host that a process has ended.
type silentHosts struct{}

func (silentHosts) Refuses(context.Context, plan.PeerID) bool { return false }

// TestASilentHostIsMissedSoon: a machine that was heard of every second goes silent, without a word from its host. The
// plan without it is looked for before it counts as gone, which is long before UnreachableAfter, and none is looked for again.
func TestASilentHostIsMissedSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := rehearsedRun()
		run.Train.Stages = 0
		log := &oneLeader{state: consensus.State{Run: &run, Epoch: 1, Members: []consensus.Member{
			{Peer: "a", State: consensus.Active, Profile: withDevices(1)}, {Peer: "dead", State: consensus.Active, Profile: withDevices(1)},
		}}}
		var mu sync.Mutex
		var searched []time.Time
		beats := gossip.NewTracker()
		l := New(Config{
			Self: "a", Consensus: log, Peers: silentHosts{}, Heartbeats: beats, Log: slog.New(slog.DiscardHandler),
			Planner: Planner{
				Make: func(_ context.Context, in planner.Input) (plan.Plan, plan.Reasons, error) {
					mu.Lock()
					defer mu.Unlock()
					searched = append(searched, time.Now())
					p := plan.Plan{Generation: plan.Generation(len(searched)), Replicas: make([]plan.Pipeline, 1)}
					for _, m := range in.Members {
						p.Replicas[0].Stages = append(p.Replicas[0].Stages, plan.Placement{Peer: m.Peer, Device: "cpu"})
					}
					return p, plan.Reasons{}, nil
				},
				ShouldReplan: func(context.Context, planner.Input, plan.Plan) (planner.Decision, error) {
					return planner.Decision{}, errors.New("not asked for here")
				},
			},
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { defer close(ended); l.Run(ctx) }()
		state := func() consensus.State { synctest.Wait(); return log.State() }
		for range 20 {
			beats.Note(gossip.Heartbeat{Peer: "dead", Generation: state().Plan.Generation}, time.Now())
			time.Sleep(time.Second)
		}
		silent := time.Now().Add(-time.Second)
		for time.Since(silent) < silence.Least+2*decideEvery {
			time.Sleep(decideEvery / 4)
			if m, _ := state().Member("dead"); m.State == consensus.Gone {
				break
			}
		}
		gone := time.Now()
		if m, _ := state().Member("dead"); m.State != consensus.Gone || gone.Sub(silent) < silence.Least {
			t.Errorf("after %v of silence the member is %s", gone.Sub(silent), m.State)
		}
		time.Sleep(salvageGrace + 3*decideEvery)
		if p := state().Plan; p.Generation != 2 || p.Places("dead") {
			t.Errorf("the plan is %+v", p)
		}
		cancel()
		<-ended
		if len(searched) < 2 || !searched[1].Before(gone) {
			t.Errorf("plans were looked for at %v, the member was gone at %v", searched, gone)
		}
	})
}
