package generation

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"

	"pnode/node/gossip"
	"pnode/pipeline/model"
	"pnode/planner/plan"
	"pnode/swarm/consensus"
)

// theory is a Restorer whose tries a test carries out.
type theory struct {
	*testing.T
	*Restorer
	group   errgroup.Group
	state   consensus.State
	running *restoration // the try that goes on; nil for none
	tries   int
	result  chan error
}

// theorize calls f in a bubble of virtual time with the Restorer of a, in a run of four members with a layer each. They have made the
// checkpoint of step 20, and each alone has its layer of it.
func theorize(t *testing.T, f func(r *theory)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &theory{T: t, result: make(chan error)}
		r.Restorer = NewRestorer(&Parts{Self: "a", Group: &r.group, Heartbeats: gossip.NewTracker(), Log: slog.New(slog.DiscardHandler)})
		r.restore = func(ctx context.Context, of restoration) error {
			r.running = &of
			r.tries++
			defer func() { r.running = nil }()
			select {
			case err := <-r.result:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		s := consensus.State{
			Run:        &plan.RunSpec{Model: model.Config{Blocks: 2}, Train: plan.TrainSpec{Steps: 100}},
			Checkpoint: consensus.Checkpoint{Step: 20, Generation: 1}, Older: []consensus.Checkpoint{{Step: 10, Generation: 1}},
			Plan: plan.Plan{Generation: 1, Replicas: []plan.Pipeline{{}}},
		}
		all := []plan.PeerID{"a", "b", "c", "d"}
		for l, peer := range all {
			s.Members = append(s.Members, consensus.Member{Peer: peer, State: consensus.Active, ProcessEpoch: 1})
			s.Plan.Replicas[0].Stages = append(s.Plan.Replicas[0].Stages, plan.Placement{Peer: peer, Layers: plan.LayerRange{First: l, End: l + 1}})
			s.Checkpoint.Layers = append(s.Checkpoint.Layers, consensus.LayerRef{Layer: l, SizeBytes: 1, Holders: []plan.PeerID{peer}})
			s.Older[0].Layers = append(s.Older[0].Layers, consensus.LayerRef{Layer: l, SizeBytes: 1, Holders: all})
		}
		r.state = s
		r.Begin(s)
		f(r)
		r.Stop()
		if err := r.group.Wait(); err != nil {
			t.Error(err)
		}
	})
}

// lose has the log say that a member is gone.
func (r *theory) lose(peer plan.PeerID) {
	r.state.Members = slices.Clone(r.state.Members)
	i := slices.IndexFunc(r.state.Members, func(m consensus.Member) bool { return m.Peer == peer })
	r.state.Members[i].State = consensus.Gone
}

// want has the Restorer follow the log, and compares what is computed then, at the how manyth try, and what cannot be.
func (r *theory) want(what string, tries int, failed plan.Step, lost ...int) {
	r.Helper()
	r.Follow(r.Context(), r.state, false)
	synctest.Wait()
	var computed []int
	if r.running != nil {
		computed = r.running.Layers
	}
	if !slices.Equal(computed, lost) || r.tries != tries || r.Failed() != failed {
		r.Errorf("%s: computes %v, try %d, cannot %d, want %v, %d and %d", what, computed, r.tries, r.Failed(), lost, tries, failed)
	}
}

// TestARestorationEndsWithItsReason: with its checkpoint, and when what is lost is there again, without a word of failure.
func TestARestorationEndsWithItsReason(t *testing.T) {
	theorize(t, func(r *theory) {
		r.want("nothing is lost", 0, 0)
		whole := r.state
		r.lose("c")
		lost := r.state
		r.want("c is gone", 1, 0, 2)
		r.state.Plan.Generation, r.state.Plan.Start = 2, 20
		r.Begin(r.state)
		r.want("the next plan waits for it", 1, 0, 2)
		r.state = whole
		r.want("c is back", 1, 0)
		r.state = lost
		r.want("c is gone again", 2, 0, 2)
		r.state.Checkpoint, r.state.Older = r.state.Older[0], nil
		r.want("the run goes back", 2, 0)
		r.state = lost
		r.Follow(r.Context(), r.state, true)
		synctest.Wait()
		if r.running != nil || r.tries != 2 {
			t.Error("layers are computed again which all have in memory")
		}
	})
}

// TestASecondDeathIsRestoredToo: a try is given up for one that has all that is lost, and goes on where it has saved some of it.
func TestASecondDeathIsRestoredToo(t *testing.T) {
	theorize(t, func(r *theory) {
		r.lose("c")
		r.want("c is gone", 1, 0, 2)
		r.lose("d")
		r.want("d, too", 2, 0, 2, 3)
		if got := r.running.peers; !slices.Equal(got, []plan.PeerID{"c", "d"}) {
			t.Errorf("the workers of %v are run", got)
		}
		r.state.Checkpoint.Layers = slices.Clone(r.state.Checkpoint.Layers)
		r.state.Checkpoint.Layers[2].Holders = []plan.PeerID{"c", "a"}
		r.want("layer 2 is saved", 2, 0, 2, 3)
		r.result <- errors.New("the disk is full")
		synctest.Wait()
		r.want("the rest is tried again", 3, 0, 3)
		r.result <- nil
		synctest.Wait()
		r.want("and no more", 3, 0)
	})
}

// TestAFailedRestorationIsTold: for as long as its checkpoint lacks the layers. It is tried once.
func TestAFailedRestorationIsTold(t *testing.T) {
	theorize(t, func(r *theory) {
		whole := r.state
		r.lose("c")
		r.want("c is gone", 1, 0, 2)
		r.result <- errors.New("somebody kept no messages")
		synctest.Wait()
		r.want("it failed", 1, 20)
		r.want("and is told", 1, 20)
		r.state = whole
		r.want("c is back", 1, 0)
	})
}

// TestAnotherOneRestoresWhereTheFirstCannot: a member that is not the first waits for the word of those before it, as one that failed does not
// try again when it has their word, and goes on with what it has begun.
func TestAnotherOneRestoresWhereTheFirstCannot(t *testing.T) {
	theorize(t, func(r *theory) {
		r.Self = "b"
		says := func(peer plan.PeerID, cannot plan.Step) {
			r.Heartbeats.Note(gossip.Heartbeat{Peer: peer, NoRestore: cannot}, time.Now())
		}
		r.lose("c")
		r.want("a is the first", 0, 0)
		says("a", 10)
		r.want("a cannot restore another one", 0, 0)
		says("a", 20)
		r.want("a cannot", 1, 0, 2)
		says("a", 0)
		r.want("a can", 1, 0, 2)
		r.result <- errors.New("the disk is full")
		synctest.Wait()
		r.want("neither can", 1, 20)
		says("a", 20)
		says("b", 20)
		r.want("nor can a", 1, 20)
		r.lose("a")
		r.want("more is lost", 1, 0)
		says("b", 0)
		r.want("and is tried", 2, 0, 0, 2)
	})
}

// TestAFailureIsToldOfItsCheckpoint: of the older one that has to be restored first, so that nobody takes the word for one of the newest.
func TestAFailureIsToldOfItsCheckpoint(t *testing.T) {
	theorize(t, func(r *theory) {
		before := r.state.Older[0].Layers
		newest := r.state.Checkpoint
		newest.Step, newest.Generation = 30, 2
		r.state.Older = []consensus.Checkpoint{r.state.Checkpoint, {Step: 10, Generation: 1, Layers: before}}
		r.state.Checkpoint, r.state.Plan.Generation, r.state.Plan.Start = newest, 2, 20
		r.Begin(r.state)
		r.lose("c")
		r.want("c is gone, with its layer of both", 1, 0, 2)
		if got := r.running.Of.Step; got != 20 {
			t.Fatalf("the checkpoint of step %d is restored first", got)
		}
		r.result <- errors.New("the disk is full")
		synctest.Wait()
		r.want("it failed", 1, 20)
		r.Heartbeats.Note(gossip.Heartbeat{Peer: "a", NoRestore: 20}, time.Now())
		r.state.Older = slices.Clone(r.state.Older)
		r.state.Older[0].Layers = before
		r.want("another one has restored it", 2, 0, 2)
		if r.running == nil || r.running.Of.Step != 30 {
			t.Error("the newest is not tried")
		}
	})
}

// TestTheNextRestoresWhereTheFirstHangs: one that says nothing is waited for as long as the steps took, or for a while, and each next one as
// long again. What is saved meanwhile is progress.
func TestTheNextRestoresWhereTheFirstHangs(t *testing.T) {
	for name, c := range map[string]struct{ step, patience time.Duration }{
		"short steps":     {time.Millisecond, nextAfter},
		"long steps":      {6 * time.Second, time.Minute},
		"very long steps": {time.Hour, mostPatience},
	} {
		t.Run(name, func(t *testing.T) {
			theorize(t, func(r *theory) {
				r.Self = "b"
				r.state.Plan.Generation = 2
				r.Heartbeats.Note(gossip.Heartbeat{Peer: "a", Generation: 2, StepNanos: int64(c.step)}, time.Now())
				r.lose("c")
				r.lose("d")
				r.want("a is the first", 0, 0)
				time.Sleep(c.patience - 1)
				r.want("a has time", 0, 0)
				r.state.Checkpoint.Layers = slices.Clone(r.state.Checkpoint.Layers)
				r.state.Checkpoint.Layers[3].Holders = []plan.PeerID{"d", "a"}
				r.want("a has saved a layer", 0, 0)
				time.Sleep(c.patience - time.Nanosecond)
				r.want("a has time for the other", 0, 0)
				time.Sleep(time.Nanosecond)
				r.want("a has had its time", 1, 0, 2)
			})
		})
	}
}

// TestARestorationNeedsThePlanOfItsCheckpoint: a process that was started after it says that it cannot, whoever is the first.
func TestARestorationNeedsThePlanOfItsCheckpoint(t *testing.T) {
	for name, forget := range map[string]func(r *theory){
		"another process":          func(r *theory) { r.begun = nil },
		"optimizer state in parts": func(r *theory) { r.begun[0].Plan.Sharded = plan.LayerRanges{{First: 0, End: 1}} },
	} {
		t.Run(name, func(t *testing.T) {
			theorize(t, func(r *theory) {
				forget(r)
				r.Self = "d"
				r.lose("c")
				r.want("at once", 0, 20)
				r.want("and once", 0, 20)
			})
		})
	}
}

// TestLostLayersAreComputedAgain: a member is lost with the only copy of its layer of the newest checkpoint. Another one computes it again, from
// the checkpoint before, where all others live, and where one was started again since. Nothing of it counts as a salvage's steps.
func TestLostLayersAreComputedAgain(t *testing.T) {
	for name, reborn := range map[string]bool{"all others live": false, "one was started again before the newest plan": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rehearse(t, 3, func(r *rig) {
					r.plan([]int{0, 1, 2})
					begun := r.now()
					r.wantDone()
					lost, by, other := r.members[0], r.members[1], r.members[2]
					lost.kill()
					r.apply(consensus.SetMemberState{Peer: lost.parts.Self, ProcessEpoch: 1, State: consensus.Gone, Reason: "its process has ended"})
					if reborn {
						other.mute() // its new process has no messages of the plan
						r.apply(consensus.Join{Peer: other.parts.Self, ProcessEpoch: 2, Label: "node-2"})
						r.apply(consensus.SetMemberState{Peer: other.parts.Self, ProcessEpoch: 2, State: consensus.Active})
					}
					r.mu.Lock()
					s := r.state
					s.PlanEpoch = s.Epoch // of a plan that follows
					s.Checkpoint.Layers = slices.Clone(s.Checkpoint.Layers)
					for i := range s.Checkpoint.Layers {
						s.Checkpoint.Layers[i].Holders = s.Checkpoint.Layers[i].Holders[:1]
					}
					r.set(s)
					r.mu.Unlock()
					older := s
					older.Checkpoint, older.Older = s.Older[0], nil
					if err := by.parts.Checkpointer.Commit(older); err != nil {
						t.Fatal(err)
					}
					restorer := NewRestorer(&by.parts)
					if of := consensus.Restore(s); of.By[0] != by.parts.Self || len(of.Layers) == 0 {
						t.Fatalf("%v restore %v", of.By, of.Layers)
					}
					restorer.Begin(begun)
					restorer.Follow(t.Context(), s, false)
					r.until("the lost layers", func() bool {
						return len(r.now().Checkpoint.Lost(r.now())) == 0 || restorer.Failed() != 0
					})
					if restorer.Failed() != 0 {
						t.Error("the lost layers could not be computed again")
					}
					restorer.Stop()
					if n := by.replays.Load(); n != 0 {
						t.Errorf("it counts as %d replays of a salvage", n)
					}
				})
			})
		})
	}
}
